extension MapPage {
    /// The page's style sheet.
    static let style = #"""
        :root {
          color-scheme: light;
          --bg: #f4f5f7; --card: #ffffff; --ink: #15191f; --soft: #5c6673; --line: #dde1e7; --accent: #0b6a73;
          --fresh: #1d8a4a; --stale: #c47a00; --negative: #7a4fc0; --missing: #c0392b; --again: #2f7fb5;
          --map: #dfe4ea; --shadow: 0 1px 2px rgba(16, 24, 40, .08);
        }
        @media (prefers-color-scheme: dark) {
          :root:not([data-theme="light"]) {
            color-scheme: dark;
            --bg: #12151a; --card: #1b2027; --ink: #e9edf2; --soft: #98a3b1; --line: #2c333d; --accent: #4fc3cf;
            --fresh: #3fbf74; --stale: #f0a830; --negative: #b08cf0; --missing: #f0685a; --again: #6db5e5;
            --map: #20262e; --shadow: none;
          }
        }
        :root[data-theme="dark"] {
          color-scheme: dark;
          --bg: #12151a; --card: #1b2027; --ink: #e9edf2; --soft: #98a3b1; --line: #2c333d; --accent: #4fc3cf;
          --fresh: #3fbf74; --stale: #f0a830; --negative: #b08cf0; --missing: #f0685a; --again: #6db5e5;
          --map: #20262e; --shadow: none;
        }
        * { box-sizing: border-box; }
        html, body { height: 100%; margin: 0; }
        body {
          background: var(--bg); color: var(--ink); display: grid; grid-template: auto 1fr / minmax(0, 1fr) 400px;
          font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
        }
        header {
          grid-column: 1 / -1; display: flex; align-items: center; gap: 10px 16px; padding: 8px 14px;
          background: var(--card); border-bottom: 1px solid var(--line); flex-wrap: wrap; z-index: 2;
        }
        h1 { font-size: 16px; margin: 0; letter-spacing: -.01em; }
        h1 small { color: var(--soft); font-weight: 400; margin-left: 6px; }
        h2 { font-size: 12px; margin: 0; color: var(--soft); font-weight: 600; }
        .switch { display: flex; gap: 2px; background: var(--bg); border: 1px solid var(--line); border-radius: 9px;
          padding: 2px; overflow-x: auto; max-width: 100%; }
        .switch button { border: 0; background: none; color: var(--ink); padding: 5px 12px; border-radius: 7px;
          font: inherit; cursor: pointer; white-space: nowrap; }
        .switch button[aria-checked="true"] { background: var(--accent); color: var(--card); font-weight: 600; }
        .toggle { display: inline-flex; align-items: center; gap: 8px; cursor: pointer; user-select: none; }
        .toggle input { appearance: none; width: 36px; height: 20px; border-radius: 10px; background: var(--line);
          position: relative; margin: 0; cursor: pointer; transition: background .15s; }
        .toggle input::after { content: ""; position: absolute; top: 2px; left: 2px; width: 16px; height: 16px;
          border-radius: 50%; background: var(--card); transition: left .15s; }
        .toggle input:checked { background: var(--accent); }
        .toggle input:checked::after { left: 18px; }
        .spacer { flex: 1; }
        .live { display: inline-flex; align-items: center; gap: 6px; color: var(--soft); font-size: 12px; }
        .live::before { content: ""; width: 8px; height: 8px; border-radius: 50%; background: var(--fresh); }
        .live.off::before { background: var(--missing); }
        .icon { border: 1px solid var(--line); background: none; color: var(--ink); border-radius: 8px; width: 32px;
          height: 30px; cursor: pointer; font-size: 15px; line-height: 1; }
        :focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
        /* The group scrolls and so cuts off what lies outside of it: the ring is inside. */
        .switch button:focus-visible { outline-offset: -3px; }
        .switch button[aria-checked="true"]:focus-visible { outline-color: var(--card); outline-offset: -4px; }
        /* Leaflet's own controls are white in both themes. Some versions set outline: none on them at each key. */
        .leaflet-container a:focus-visible { outline: 3px solid #0b6a73 !important; outline-offset: -3px; }
        /* The map fills its place: the ring lies over its tiles. */
        #map:focus-visible { outline: none; }
        #map:focus-visible::after { content: ""; position: absolute; inset: 0; z-index: 900; pointer-events: none;
          border: 4px solid var(--accent); box-shadow: inset 0 0 0 2px var(--card); }
        #aim { display: none; position: absolute; left: 50%; top: 50%; width: 22px; height: 22px; margin: -11px;
          z-index: 450; pointer-events: none; border: 3px solid var(--accent); border-radius: 50%;
          box-shadow: 0 0 0 2px var(--card), inset 0 0 0 2px var(--card); }
        .shaded #map:focus-visible ~ #aim, .outlined #map:focus-visible ~ #aim { display: block; }
        .unseen { position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden; clip-path: inset(50%);
          white-space: nowrap; }
        #place { position: relative; min-height: 0; min-width: 0; }
        #map { position: absolute; inset: 0; background: var(--map); z-index: 0; }
        #note { position: absolute; inset: auto 12px 28px 12px; z-index: 500; background: var(--card);
          border: 1px solid var(--line); border-radius: 10px; padding: 10px 14px; box-shadow: var(--shadow); }
        #legend { position: absolute; left: 10px; bottom: 26px; z-index: 500; background: var(--card); color: var(--ink);
          border: 1px solid var(--line); border-radius: 10px; padding: 7px 11px; display: flex; flex-wrap: wrap;
          gap: 3px 12px; font-size: 12px; max-width: calc(100% - 20px); box-shadow: var(--shadow); }
        .vector canvas { display: block; width: 100%; height: 100%; }
        .vector b { position: absolute; left: 5px; bottom: 5px; right: 5px; padding: 2px 6px; border-radius: 5px;
          background: var(--card); color: var(--missing); border-left: 4px solid var(--missing); font-size: 11px;
          overflow-wrap: anywhere; }
        #layers { position: absolute; right: 10px; top: 10px; z-index: 500; background: var(--card); color: var(--ink);
          border: 1px solid var(--line); border-radius: 10px; padding: 7px 11px; font-size: 13px; max-width: min(46%, 260px);
          box-shadow: var(--shadow); }
        #layers summary { cursor: pointer; font-weight: 600; }
        #layers fieldset { border: 0; margin: 0; padding: 0; min-width: 0; max-height: 44vh; overflow: auto; }
        #layers label { display: flex; align-items: center; gap: 7px; padding: 2px; cursor: pointer; }
        #layers label span { overflow-wrap: anywhere; }
        #layers input { accent-color: var(--accent); margin: 0; flex: none; }
        #layers p { margin: 4px 0; color: var(--soft); font-size: 12px; }
        #layers button { border: 1px solid var(--line); background: none; color: var(--ink); border-radius: 6px;
          font: inherit; padding: 1px 9px; cursor: pointer; }
        #layers i, .found h3 i { width: 16px; height: 4px; border-radius: 2px; flex: none; display: inline-block; }
        .found { max-height: 34vh; overflow: auto; min-width: 200px; }
        .found h3 { font-size: 12px; margin: 7px 0 2px; display: flex; align-items: center; gap: 6px; overflow-wrap: anywhere; }
        .found td { overflow-wrap: anywhere; vertical-align: top; }
        .leaflet-popup-content .found p { margin: 4px 0; font-size: 12px; }
        [hidden] { display: none !important; }
        .key::before { content: ""; display: inline-block; width: 10px; height: 10px; border-radius: 3px;
          margin-right: 6px; background: var(--mark); }
        .is-fresh { --mark: var(--fresh); } .is-stale { --mark: var(--stale); } .is-negative { --mark: var(--negative); }
        .is-missing { --mark: var(--missing); } .is-again { --mark: var(--again); } .is-local { --mark: var(--again); }
        .cell { box-shadow: inset 0 0 0 calc(1px / var(--enlarged, 1)) color-mix(in srgb, var(--mark, var(--soft)) 75%, transparent);
          font-size: 11px;
          background: color-mix(in srgb, var(--mark, transparent) 26%, transparent); pointer-events: auto; }
        .cell b { position: absolute; left: 0; top: 0; margin: 5px; padding: 2px 6px; border-radius: 5px; line-height: 1.35;
          transform: scale(calc(1 / var(--enlarged, 1))); transform-origin: -5px -5px;
          background: var(--card); color: var(--ink); border-left: 4px solid var(--mark, var(--soft));
          font-weight: 600; font-variant-numeric: tabular-nums; }
        .cell b i { display: block; font-style: normal; font-weight: 400; color: var(--soft); }
        main { overflow-y: auto; padding: 12px; display: grid; grid-template-columns: 1fr 1fr; gap: 10px;
          align-content: start; border-left: 1px solid var(--line); }
        .card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 11px 13px;
          box-shadow: var(--shadow); min-width: 0; }
        .wide { grid-column: 1 / -1; }
        .card strong { display: block; font-size: 25px; line-height: 1.2; letter-spacing: -.02em;
          font-variant-numeric: tabular-nums; white-space: nowrap; }
        .card strong small { font-size: 13px; font-weight: 400; color: var(--soft); letter-spacing: 0; }
        .card p { margin: 2px 0 0; color: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
        .spark { display: block; width: 100%; height: 28px; margin-top: 6px; overflow: visible; }
        .spark path { fill: none; stroke: var(--accent); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
        .spark path + path { fill: var(--accent); opacity: .13; stroke: none; }
        .bar { display: flex; height: 8px; border-radius: 4px; background: var(--line); overflow: hidden; margin: 8px 0 4px; }
        .bar span { background: var(--mark, var(--accent)); min-width: 0; transition: width .3s; }
        .bar.near span { background: var(--stale); }
        .source { padding-top: 10px; margin-top: 10px; border-top: 1px solid var(--line); }
        .source:first-of-type { border: 0; margin-top: 2px; padding-top: 4px; }
        .source > div:first-child { display: flex; justify-content: space-between; gap: 8px; align-items: baseline; }
        .source b { font-size: 14px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
        .source em { font-style: normal; font-weight: 600; font-variant-numeric: tabular-nums; }
        .source dl { display: grid; grid-template-columns: repeat(3, 1fr); gap: 4px 10px; margin: 6px 0 0; }
        .source dt { color: var(--soft); font-size: 11px; }
        .source dd { margin: 0; font-variant-numeric: tabular-nums; font-size: 13px; }
        .keys { display: flex; flex-wrap: wrap; gap: 2px 12px; color: var(--soft); font-size: 11px; margin-top: 4px; }
        footer { grid-column: 1 / -1; color: var(--soft); font-size: 12px; padding: 2px 2px 12px; }
        a { color: var(--accent); }
        .leaflet-container { font: inherit; }
        .leaflet-popup-content table { border-collapse: collapse; font-size: 12px; }
        .leaflet-popup-content td { padding: 1px 10px 1px 0; font-variant-numeric: tabular-nums; }
        .leaflet-popup-content td:first-child { color: #5c6673; }
        @media (max-width: 820px) {
          html, body { height: auto; }
          body { grid-template: auto 58vh auto / minmax(0, 1fr); }
          main { border-left: 0; border-top: 1px solid var(--line); overflow: visible; }
          header { gap: 8px 12px; }
          h1 small { display: none; }
          .switch { order: 5; width: 100%; }
          .switch button { flex: 1 0 auto; }
          .card strong { font-size: 21px; }
          .card { padding: 10px 11px; }
        }
        @media (prefers-reduced-motion: reduce) { * { transition: none !important; } }
        """#
}
