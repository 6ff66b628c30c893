extension MapPage {
    /// The script that the page's other scripts take their shorthands from.
    static let pageToolsScript = #"""
        'use strict';
        const PageTools = (function () {
          const $ = (id) => document.getElementById(id);
          const make = (name, text, className) => {
            const element = document.createElement(name);
            if (text !== undefined) element.textContent = text;
            if (className) element.className = className;
            return element;
          };
          return { $, make };
        })();
        """#
}
