extension MapPage {
    /// The page's main script: the map, the shading by state, and the figures.
    static let script = #"""
        'use strict';
        (function () {
          const own = document.documentElement.dataset.own;
          const root = document.documentElement.dataset.root;
          const { $, make } = PageTools;

          // Figures as people read them.
          const whole = new Intl.NumberFormat('en');
          const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
          const number = (n) => (n < 10000 ? whole.format(n) : short.format(n));
          const bytes = (n) => {
            const units = ['B', 'KB', 'MB', 'GB', 'TB', 'PB'];
            let i = 0;
            while (n >= 1000 && i < units.length - 1) { n /= 1000; i++; }
            return (i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)) + '\u202f' + units[i];
          };
          const percent = (x) => (x == null ? '–' : (x >= 0.9995 ? '100' : (100 * x).toFixed(1)) + '\u202f%');
          const time = (s) => {
            if (s == null) return '–';
            if (s === 'inf') return '> 30\u202fs';
            return s < 1 ? Math.round(s * 1000) + '\u202fms' : s.toFixed(1) + '\u202fs';
          };
          const span = (s) => {
            s = Math.abs(s);
            if (s < 90) return s + '\u202fs';
            if (s < 5400) return Math.round(s / 60) + '\u202fmin';
            return s < 172800 ? Math.round(s / 3600) + '\u202fh' : Math.round(s / 86400) + '\u202fd';
          };

          // --- dashboard
          const history = [];
          const text = (id, value) => { if ($(id).textContent !== value) $(id).textContent = value; };

          function spark(id, values, top) {
            const w = 100, h = 28, most = Math.max(top || 0, ...values, 1e-9);
            const points = values.map((v, i) => [
              values.length < 2 ? w : (i * w) / (values.length - 1), h - 2 - (v / most) * (h - 4)]);
            const line = points.map((p, i) => (i ? 'L' : 'M') + p[0].toFixed(2) + ' ' + p[1].toFixed(2)).join('');
            const paths = $(id).querySelectorAll('path');
            paths[0].setAttribute('d', line || 'M0 26L100 26');
            paths[1].setAttribute('d', line ? line + 'L100 28L' + points[0][0].toFixed(2) + ' 28Z' : '');
          }

          function remember(stats) {
            let answered = 0, good = 0;
            for (const s of stats.sources) {
              good += s.hits + s.stale + s.revalidated;
              answered += s.hits + s.stale + s.revalidated + s.misses;
            }
            history.push({ at: performance.now(), requests: stats.requests + stats.genericRequests, answered, good });
            if (history.length > 61) history.shift();
          }

          function show(stats) {
            remember(stats);
            const rates = [], ratios = [];
            for (let i = 1; i < history.length; i++) {
              const a = history[i - 1], b = history[i];
              rates.push(Math.max(0, b.requests - a.requests) / Math.max(0.1, (b.at - a.at) / 1000));
              ratios.push(b.answered > a.answered ? (b.good - a.good) / (b.answered - a.answered)
                : ratios.length ? ratios[ratios.length - 1] : stats.hitRatio || 0);
            }
            text('hit-ratio', percent(stats.hitRatio));
            const first = history[0], last = history[history.length - 1];
            const lately = last.answered > first.answered
              ? percent((last.good - first.good) / (last.answered - first.answered)) : '–';
            text('hit-note', 'last two minutes: ' + lately);
            spark('hit-spark', ratios, 1);
            text('requests', number(stats.requests + stats.genericRequests));
            const rate = rates.length ? rates[rates.length - 1] : 0;
            text('request-note', (rate < 10 ? rate.toFixed(1) : number(Math.round(rate))) + '/s · '
              + bytes(stats.bytesSent) + ' sent');
            spark('request-spark', rates);
            const cache = stats.cache;
            if (cache) {
              const used = cache.allocatedBytes - cache.pinnedBytes;
              const share = cache.capacity ? used / cache.capacity : 0;
              $('disk').replaceChildren(bytes(cache.allocatedBytes),
                make('small', cache.capacity ? ' of ' + bytes(cache.capacity) : ' · no limit set'));
              $('disk-bar').firstElementChild.style.width = Math.min(100, 100 * share).toFixed(1) + '%';
              $('disk-bar').classList.toggle('near', share > 0.9);
              text('disk-note', number(cache.entries) + ' tiles and files · ' + number(cache.stale) + ' stale · '
                + number(cache.negative) + ' known to be absent'
                + (cache.pinnedBytes ? ' · ' + bytes(cache.pinnedBytes) + ' pinned' : '')
                + ' · besides: checkpoint ' + bytes(cache.checkpointBytes) + ', journal ' + bytes(cache.journalBytes)
                + ', index image ' + bytes(cache.imageBytes));
              text('dedupe', bytes(cache.bytesSavedByDedupe));
              text('dedupe-note', number(cache.entries) + ' entries, ' + number(cache.blobs) + ' blobs');
              text('evicted', number(cache.evictedBlobs));
              text('evicted-note', bytes(cache.evictedBytes) + ' made free');
            }
            let confirmed = 0, sum = 0, count = 0, slow = null;
            for (const s of stats.sources) {
              confirmed += s.upstreamNotModified;
              if (s.upstreamMean != null) { sum += s.upstreamMean * s.upstreamRequests; count += s.upstreamRequests; }
              if (s.upstream95 != null && (slow == null || s.upstream95 === 'inf' || s.upstream95 > slow)) {
                slow = s.upstream95;
              }
            }
            text('saved', bytes(stats.bytesSavedByNotModified));
            text('saved-note', number(confirmed) + ' tiles not sent again');
            text('latency', time(count ? sum / count : null));
            text('latency-note', '95 of 100 within ' + time(slow));
            shared(stats.shared);
            sources(stats);
            text('about', 'tileproxy ' + stats.version + ' · up ' + span(stats.uptime)
              + (stats.notStored ? ' · ' + number(stats.notStored) + ' tiles could not be stored: see the log' : ''));
          }

          // A title with a figure, a bar of parts, and a list of cells.
          function block(title, marks, names) {
            const row = { box: make('div', undefined, 'source'), title: make('b', title), ratio: make('em'),
              parts: {}, cells: {} };
            const head = make('div');
            head.append(row.title, row.ratio);
            const bar = make('div', undefined, 'bar');
            for (const [part, mark] of marks) {
              row.parts[part] = make('span', undefined, 'is-' + mark);
              bar.append(row.parts[part]);
            }
            const list = make('dl');
            for (const name of names) {
              const cell = make('div');
              row.cells[name] = make('dd');
              cell.append(make('dt', name), row.cells[name]);
              list.append(cell);
            }
            row.box.append(head, bar, list);
            return row;
          }
          function fillBar(row, figures) {
            const total = Object.keys(row.parts).reduce((sum, part) => sum + figures[part], 0);
            for (const part in row.parts) row.parts[part].style.width = total ? (100 * figures[part]) / total + '%' : '0';
          }

          // Only of a proxy that shares a bucket with others.
          let bucket = null;
          function shared(figures) {
            $('shared').hidden = !figures;
            if (!figures) return;
            const names = ['hits', 'misses', 'errors', 'stores', 'dropped', 'waiting'];
            if (!bucket) {
              bucket = block('', [['hits', 'fresh'], ['misses', 'negative'], ['errors', 'missing']], names);
              bucket.title.id = 'shared-state';
              $('shared').append(bucket.box);
            }
            fillBar(bucket, figures);
            const isOpen = figures.state === 'open', looks = figures.hits + figures.misses;
            bucket.title.className = isOpen ? 'live off' : 'live';
            text('shared-state', isOpen ? 'open: it is left alone'
              : 'ok' + (figures.mean == null ? '' : ' · answers in ' + time(figures.mean)));
            bucket.ratio.textContent = percent(looks ? figures.hits / looks : null);
            for (const name of names) {
              bucket.cells[name].dataset.figure = name;
              bucket.cells[name].textContent = number(figures[name]);
            }
          }

          const rows = new Map();
          function sources(stats) {
            for (const s of stats.sources) {
              let row = rows.get(s.name);
              if (!row) {
                row = block(s.title, [['hits', 'fresh'], ['stale', 'stale'], ['revalidated', 'again'],
                  ['misses', 'negative'], ['errors', 'missing']],
                  ['requests', 'origin', 'latency', 'from origin', 'stored', 'errors']);
                rows.set(s.name, row);
                $('sources').append(row.box);
              }
              fillBar(row, s);
              row.ratio.textContent = s.local ? 'local files' : percent(s.hitRatio);
              const set = (name, value) => { row.cells[name].textContent = value; };
              set('requests', number(s.requests));
              set('origin', number(s.upstreamRequests) + (s.upstreamFailures
                ? ' (' + number(s.upstreamFailures) + ' failed)' : ''));
              set('latency', s.upstreamMedian == null ? '–' : time(s.upstreamMedian) + ' / ' + time(s.upstream95));
              set('from origin', bytes(s.upstreamBytes));
              set('stored', number(s.entries) + ' · ' + bytes(s.bytes));
              set('errors', number(s.errors));
            }
            const names = new Set(stats.sources.map((s) => s.name));
            for (const [name, row] of rows) if (!names.has(name)) { row.box.remove(); rows.delete(name); }
          }

          // --- map
          // The layer of pictures or vector tiles, the latter as `vectors` too, and the one of cells.
          let map = null, layer = null, vectors = null, grid = null, current = null;
          const offset = (source) => (source.tileSize === 512 ? 1 : 0);
          const note = (what) => {
            $('note').hidden = !what;
            $('note').textContent = what || '';
          };

          function start(list) {
            $('switch').hidden = list.length === 0;
            note('');
            if (!window.L) {
              note('The map library Leaflet could not be loaded. Without a way to the internet, install '
                + 'libjs-leaflet on the server, or name a folder with it as leaflet: in the configuration. '
                + 'The figures work without it.');
              return;
            }
            if (list.length === 0) {
              note('There is no tile source to show: the proxy serves only other resources.');
              return;
            }
            // The versions of a published set beside it, all but the latest, which is the set itself.
            list = list.flatMap((source) => [source].concat((source.versions || []).slice(1, 9).map((version) => (
              { ...source, route: source.name + '@' + version.id, title: source.title + ' @' + version.id.slice(0, 8) }))));
            for (const source of list) source.route = source.route || source.name;
            map = L.map('map', { worldCopyJump: true, zoomSnap: 1 });
            map.setView([25, 8], 2);
            for (const source of list) {
              const button = make('button', source.title);
              button.type = 'button';
              button.setAttribute('role', 'radio');
              button.dataset.source = source.route;
              button.addEventListener('click', () => choose(source));
              $('switch').append(button);
            }
            $('switch').addEventListener('keydown', (event) => step(event, list));
            const wanted = list.find((s) => '#' + s.route === location.hash);
            choose(wanted || list[0], true);
            $('shade').addEventListener('change', () => shade($('shade').checked));
            map.on('moveend', refresh);
            map.on('zoomend', enlarge);
            map.on('click', (event) => describe(event.latlng));
            map.on('popupclose', (event) => { if (vectors && opened && event.popup === opened.popup) vectors.forget(); });
            map.getContainer().addEventListener('keydown', (event) => {
              if (event.key === 'Enter' && event.target === event.currentTarget) describe(map.getCenter());
            });
          }

          // As in every group of radio buttons: one stop for Tab, arrow keys choose.
          function step(event, list) {
            if (event.altKey || event.ctrlKey || event.metaKey) return;
            const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
            let next = list.indexOf(current);
            if (event.key in steps) next = (next + steps[event.key] + list.length) % list.length;
            else if (event.key === 'Home') next = 0;
            else if (event.key === 'End') next = list.length - 1;
            else return;
            event.preventDefault();
            choose(list[next]);
            $('switch').children[next].focus();
          }

          function choose(source, isFirst) {
            current = source;
            for (const button of $('switch').children) {
              const isChosen = button.dataset.source === source.route;
              button.setAttribute('aria-checked', isChosen ? 'true' : 'false');
              button.tabIndex = isChosen ? 0 : -1;
            }
            map.closePopup();
            if (layer) layer.remove();
            const isVector = source.kind === 'vector' || source.kind === 'any' && /^(pbf|mvt)$/.test(source.format);
            const isPicture = !isVector && (source.kind === 'image' || source.kind === 'any');
            const move = offset(source);
            const options = {
              minZoom: source.minzoom + move, maxNativeZoom: source.maxzoom + move, maxZoom: Math.min(source.maxzoom + 3, 25),
              tileSize: source.tileSize, zoomOffset: -move, attribution: source.attribution || ''
            };
            if (source.bounds) {
              const [w, s, e, n] = source.bounds;
              if (w <= e) options.bounds = [[s, w], [n, e]];
            }
            map.setMinZoom(Math.min(options.minZoom, 25));
            map.setMaxZoom(options.maxZoom);
            layer = vectors = null;
            const tiles = root + 'tiles/' + source.route, format = source.format ? '.' + source.format : '';
            if (isPicture) layer = L.tileLayer(tiles + '/{z}/{x}/{y}' + format, options);
            else if (isVector) {
              delete options.maxNativeZoom;
              layer = vectors = VectorMap.create(map, source, options,
                (z, x, y) => tiles + '/' + z + '/' + x + '/' + y + format, tiles + '.json');
            }
            if (layer) layer.addTo(map);
            $('place').classList.toggle('outlined', isVector);
            note(layer ? '' : 'These are ' + source.kind + ' tiles. This page draws only pictures and vector tiles, so it '
              + 'shows which tiles are cached.');
            if (source.bounds && isFirst) map.fitBounds([[source.bounds[1], source.bounds[0]], [source.bounds[3], source.bounds[2]]]);
            if (!isFirst) history_replace(source.route);
            $('shade').checked = $('shade').checked || !layer;
            shade($('shade').checked);
          }

          function history_replace(name) {
            try { window.history.replaceState(null, '', '#' + name); } catch (error) { /* a sandboxed frame */ }
          }

          // --- shading by state
          // The elements of each tile: a world that is shown twice has two.
          let cells = new Map();
          const words = {
            fresh: 'fresh', stale: 'stale', negative: 'no such tile', missing: 'not cached', local: 'a file',
            outside: 'not served'
          };
          const nameOf = (z, x, y) => z + '/' + x + '/' + y;
          // The zoom of the cells: past the source's last zoom, those of the last one are shown larger.
          const cellZoom = () => Math.min(map.getZoom() - offset(current), current.maxzoom);
          // How much larger: what is written on them stays as it is.
          const enlarge = () => $('map').style.setProperty('--enlarged', 2 ** (map.getZoom() - offset(current) - cellZoom()));

          function shade(on) {
            if (!map) return;
            if (grid) { grid.remove(); grid = null; }
            map.closePopup();
            cells = new Map();
            known = new Map();
            $('legend').hidden = !on;
            $('place').classList.toggle('shaded', on);
            if (!on) return;
            for (const key of $('legend').children) key.hidden = (key.id === 'legend-file') !== current.local;
            const source = current, move = offset(source);
            const Grid = L.GridLayer.extend({
              createTile: function (coords) {
                const name = nameOf(coords.z - move, coords.x, coords.y);
                const cell = make('div', undefined, 'cell');
                cell.dataset.tile = name;
                const label = make('b', name);
                cell.append(label);
                label.append(make('i', '…'));
                if (!cells.has(name)) cells.set(name, new Set());
                cells.get(name).add(cell);
                if (known.has(name)) dress(cell, known.get(name));
                return cell;
              }
            });
            const options = {
              tileSize: source.tileSize, minZoom: source.minzoom + move, maxNativeZoom: source.maxzoom + move,
              maxZoom: 25, pane: 'overlayPane', updateWhenZooming: false, noWrap: false
            };
            if (layer && layer.options.bounds) options.bounds = layer.options.bounds;
            grid = new Grid(options);
            grid.on('tileunload', (event) => {
              const name = event.tile.dataset.tile, twins = cells.get(name);
              if (twins && twins.delete(event.tile) && twins.size === 0) cells.delete(name);
            });
            grid.on('load', refresh);
            grid.addTo(map);
            enlarge();
            refresh();
          }

          // The rectangles of tiles to ask for, each small enough for one request. Around the antimeridian the first
          // and the last columns are shown: each run of columns is asked for by itself.
          function rectangles(z) {
            const columns = new Set();
            let y0 = Infinity, y1 = -1;
            for (const name of cells.keys()) {
              const [a, x, y] = name.split('/').map(Number);
              if (a !== z) continue;
              columns.add(x);
              y0 = Math.min(y0, y);
              y1 = Math.max(y1, y);
            }
            const side = 32, found = [];
            let first = null, last = null;
            const end = () => {
              for (let y = y0; y <= y1; y += side) found.push([first, last, y, Math.min(y1, y + side - 1)]);
            };
            for (const x of [...columns].sort((a, b) => a - b)) {
              if (first !== null && (x !== last + 1 || x - first >= side)) { end(); first = x; }
              if (first === null) first = x;
              last = x;
            }
            if (first !== null) end();
            return found;
          }

          let known = new Map(), asking = false, again = false;
          async function refresh() {
            if (!grid || cells.size === 0) return;
            if (asking) { again = true; return; }
            asking = true;
            const source = current, z = cellZoom();
            // While one zooms fast, Leaflet leaves cells of other zooms behind, enlarged.
            for (const twins of cells.values()) {
              for (const cell of twins) cell.hidden = Number(cell.dataset.tile.split('/')[0]) !== z;
            }
            try {
              for (const [x0, x1, y0, y1] of rectangles(z)) {
                const answer = await fetch(own + 'states.json?source=' + encodeURIComponent(source.name) + '&z=' + z
                  + '&x=' + x0 + '-' + x1 + '&y=' + y0 + '-' + y1);
                if (!answer.ok) continue;
                const states = await answer.json();
                if (current !== source) break;
                const told = new Map(states.tiles.map((tile) => [nameOf(z, tile.x, tile.y), tile]));
                for (let x = x0; x <= x1; x++) {
                  for (let y = y0; y <= y1; y++) {
                    const name = nameOf(z, x, y);
                    paint(name, told.get(name) || { x, y, state: 'outside' });
                  }
                }
              }
            } catch (error) { /* the live mark says it */ }
            asking = false;
            if (again) { again = false; refresh(); }
          }

          function paint(name, tile) {
            if (known.size > 4000) known = new Map();
            known.set(name, tile);
            for (const cell of cells.get(name) || []) dress(cell, tile);
            if (opened && opened.name === name && opened.popup.isOpen()) fill();
          }

          function dress(cell, tile) {
            cell.className = cell.className.replace(/ ?is-\w+/g, '') + ' is-' + tile.state;
            let line = words[tile.state];
            if (tile.ttl !== undefined) {
              line += tile.ttl > 0 ? ', ' + span(tile.ttl) + ' left' : ' since ' + span(tile.ttl);
            }
            if (tile.from !== undefined) line += ' · from zoom ' + tile.from;
            cell.querySelector('i').textContent = line;
          }

          // --- one tile's details, for a click and for Enter
          let opened = null;

          function describe(place) {
            if (!grid && !vectors) return;
            const z = cellZoom(), count = 2 ** z;
            const point = map.project(place, z + offset(current)).divideBy(current.tileSize).floor();
            const x = ((point.x % count) + count) % count, y = point.y;
            if (z < current.minzoom || y < 0 || y >= count) return;
            const popup = L.popup({ maxWidth: 340 }).setLatLng(place), body = make('div'), table = make('table');
            opened = { name: nameOf(z, x, y), z, x, y, popup, table, said: '' };
            body.append(table);
            const found = vectors ? vectors.describe(place) : null;
            if (found) body.append(found.box);
            popup.setContent(body);
            fill();
            popup.openOn(map);
            // The map is moved once, so that the popup is seen; later changes of its text leave the map alone.
            popup.options.autoPan = false;
            const tile = known.get(opened.name);
            text('said', current.route + '/' + opened.name + ': '
              + [grid && (tile ? words[tile.state] : 'not known yet'), found && found.words].filter(Boolean).join('; '));
          }

          function fill() {
            const { name, z, x, y, popup, table } = opened, tile = known.get(name) || {};
            const rows = [['tile', current.route + '/' + name]];
            const row = (title, value) => rows.push([title, value]);
            // The other rows describe the tile that it is made from.
            if (tile.from !== undefined) {
              const scale = 2 ** (z - tile.from);
              row('made from', current.route + '/' + nameOf(tile.from, Math.floor(x / scale), Math.floor(y / scale)));
            }
            if (grid) row('state', words[tile.state] || 'not known yet');
            if (tile.size !== undefined) row('size', bytes(tile.size));
            if (tile.age !== undefined) row('age', span(tile.age));
            if (tile.ttl !== undefined) row(tile.ttl > 0 ? 'fresh for' : 'stale for', span(tile.ttl));
            if (tile.blob) row('blob', tile.blob + '…');
            const said = JSON.stringify(rows);
            if (said === opened.said) return;
            opened.said = said;
            table.replaceChildren(...rows.map(([title, value]) => {
              const line = make('tr');
              line.append(make('td', title), make('td', value));
              return line;
            }));
            popup.update();
          }

          // --- life
          let started = false;
          async function poll() {
            let problem = 'no connection';
            try {
              const answer = await fetch(own + 'stats.json', { cache: 'no-store' });
              if (answer.ok) {
                const stats = await answer.json();
                problem = '';
                if (!started) { started = true; start(stats.sources); }
                show(stats);
              } else {
                problem = 'HTTP ' + answer.status;
              }
            } catch (error) { /* there is no answer, or it breaks off */ }
            $('live').classList.toggle('off', !!problem);
            text('live', problem || 'live');
            if (problem && !started) {
              note('The figures and the list of sources cannot be read (' + problem + '): a server in front of '
                + 'tileproxy must pass /_tileproxy/ on to it, for everybody who may see this page.');
            }
          }
          const rest = () => new Promise((resolve) => setTimeout(resolve, 2000));
          (async () => {
            for (;;) {
              if (!document.hidden || !started) { await poll(); refresh(); }
              await rest();
            }
          })();

          // --- light and dark
          const themes = { light: 'dark', dark: 'light' };
          const isDark = () => (document.documentElement.dataset.theme
            || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
          try {
            const kept = localStorage.getItem('tileproxy-theme');
            if (themes[kept]) document.documentElement.dataset.theme = kept;
          } catch (error) { /* not allowed to keep anything */ }
          $('theme').addEventListener('click', () => {
            const theme = isDark() ? 'light' : 'dark';
            document.documentElement.dataset.theme = theme;
            if (vectors) vectors.recolour();
            try { localStorage.setItem('tileproxy-theme', theme); } catch (error) { /* as above */ }
          });
        })();
        """#
}
