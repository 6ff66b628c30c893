extension MapPage {
    /// The page's script: the map, the shading by state, and the figures.
    static let script = #"""
        'use strict';
        (function () {
          const own = document.documentElement.dataset.own;
          const root = document.documentElement.dataset.root;
          const $ = (id) => document.getElementById(id);
          const make = (name, text, className) => {
            const element = document.createElement(name);
            if (text !== undefined) element.textContent = text;
            if (className) element.className = className;
            return element;
          };

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
                + (cache.pinnedBytes ? ' · ' + bytes(cache.pinnedBytes) + ' pinned' : ''));
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
            sources(stats);
            text('about', 'tileproxy ' + stats.version + ' · up ' + span(stats.uptime)
              + (stats.notStored ? ' · ' + number(stats.notStored) + ' tiles could not be stored: see the log' : ''));
          }

          const rows = new Map();
          function sources(stats) {
            for (const s of stats.sources) {
              let row = rows.get(s.name);
              if (!row) {
                row = { box: make('div', undefined, 'source'), parts: {}, cells: {} };
                const head = make('div');
                row.ratio = make('em');
                head.append(make('b', s.title), row.ratio);
                const bar = make('div', undefined, 'bar');
                for (const [part, mark] of [['hits', 'fresh'], ['stale', 'stale'], ['revalidated', 'again'],
                  ['misses', 'negative'], ['errors', 'missing']]) {
                  row.parts[part] = make('span', undefined, 'is-' + mark);
                  bar.append(row.parts[part]);
                }
                const list = make('dl');
                for (const name of ['requests', 'origin', 'latency', 'from origin', 'stored', 'errors']) {
                  const cell = make('div');
                  row.cells[name] = make('dd');
                  cell.append(make('dt', name), row.cells[name]);
                  list.append(cell);
                }
                row.box.append(head, bar, list);
                rows.set(s.name, row);
                $('sources').append(row.box);
              }
              const total = s.hits + s.stale + s.revalidated + s.misses + s.errors;
              for (const part in row.parts) row.parts[part].style.width = total ? (100 * s[part]) / total + '%' : '0';
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
          let map = null, layer = null, grid = null, current = null;
          const offset = (source) => (source.tileSize === 512 ? 1 : 0);

          function start(list) {
            $('switch').hidden = list.length === 0;
            if (!window.L) {
              $('note').hidden = false;
              $('note').textContent = 'The map library could not be loaded. Without a way to the internet, install '
                + 'libjs-leaflet on the server. The figures work all the same.';
              return;
            }
            if (list.length === 0) {
              $('note').hidden = false;
              $('note').textContent = 'There is no tile source to show: the proxy serves other resources alone.';
              return;
            }
            map = L.map('map', { worldCopyJump: true, zoomSnap: 1 });
            map.setView([25, 8], 2);
            for (const source of list) {
              const button = make('button', source.title);
              button.type = 'button';
              button.setAttribute('role', 'radio');
              button.dataset.source = source.name;
              button.addEventListener('click', () => choose(source));
              $('switch').append(button);
            }
            const wanted = list.find((s) => '#' + s.name === location.hash);
            choose(wanted || list[0], true);
            $('shade').addEventListener('change', () => shade($('shade').checked));
            map.on('moveend', refresh);
          }

          function choose(source, isFirst) {
            current = source;
            for (const button of $('switch').children) {
              button.setAttribute('aria-checked', button.dataset.source === source.name ? 'true' : 'false');
            }
            if (layer) layer.remove();
            const isPicture = source.kind === 'image' || source.kind === 'any';
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
            layer = null;
            if (isPicture) {
              const format = source.format ? '.' + source.format : '';
              layer = L.tileLayer(root + 'tiles/' + encodeURIComponent(source.name) + '/{z}/{x}/{y}' + format, options);
              layer.addTo(map);
            }
            $('note').hidden = isPicture;
            if (!isPicture) {
              $('note').textContent = 'These are ' + source.kind + ' tiles; this page draws pictures only, so it shows '
                + 'where tiles are.';
            }
            if (source.bounds && isFirst) map.fitBounds([[source.bounds[1], source.bounds[0]], [source.bounds[3], source.bounds[2]]]);
            if (!isFirst) history_replace(source.name);
            shade($('shade').checked || !isPicture);
            $('shade').checked = $('shade').checked || !isPicture;
          }

          function history_replace(name) {
            try { window.history.replaceState(null, '', '#' + name); } catch (error) { /* a sandboxed frame */ }
          }

          // --- shading by state
          let cells = new Map();
          const words = { fresh: 'fresh', stale: 'stale', negative: 'no such tile', missing: 'not cached', local: 'a file' };

          function shade(on) {
            if (!map) return;
            if (grid) { grid.remove(); grid = null; }
            cells = new Map();
            $('legend').hidden = !on;
            if (!on) return;
            for (const key of $('legend').children) key.hidden = (key.id === 'legend-file') !== current.local;
            const source = current, move = offset(source);
            const Grid = L.GridLayer.extend({
              createTile: function (coords) {
                const z = coords.z - move;
                const cell = make('div', undefined, 'cell');
                const label = make('b', z + '/' + coords.x + '/' + coords.y);
                cell.append(label);
                label.append(make('i', '…'));
                cells.set(z + '/' + coords.x + '/' + coords.y, cell);
                cell.addEventListener('click', (event) => detail(event, z, coords.x, coords.y));
                return cell;
              }
            });
            grid = new Grid({
              tileSize: source.tileSize, minZoom: source.minzoom + move, maxNativeZoom: source.maxzoom + move,
              maxZoom: 25, pane: 'overlayPane', updateWhenZooming: false, noWrap: false
            });
            grid.on('tileunload', (event) => {
              const z = event.coords.z - move;
              cells.delete(z + '/' + event.coords.x + '/' + event.coords.y);
            });
            grid.on('load', refresh);
            grid.addTo(map);
            refresh();
          }

          let known = new Map(), asking = false, again = false;
          async function refresh() {
            if (!grid || cells.size === 0) return;
            if (asking) { again = true; return; }
            asking = true;
            const source = current;
            let z = -1, x0 = Infinity, x1 = -1, y0 = Infinity, y1 = -1;
            for (const key of cells.keys()) {
              const [a, b, c] = key.split('/').map(Number);
              if (a > z) { z = a; x0 = y0 = Infinity; x1 = y1 = -1; }
              if (a === z) { x0 = Math.min(x0, b); x1 = Math.max(x1, b); y0 = Math.min(y0, c); y1 = Math.max(y1, c); }
            }
            try {
              const side = 32;
              for (let x = x0; x <= x1; x += side) {
                for (let y = y0; y <= y1; y += side) {
                  const answer = await fetch(own + 'states.json?source=' + encodeURIComponent(source.name) + '&z=' + z
                    + '&x=' + x + '-' + Math.min(x1, x + side - 1) + '&y=' + y + '-' + Math.min(y1, y + side - 1));
                  if (!answer.ok) continue;
                  const states = await answer.json();
                  if (current !== source) break;
                  for (const tile of states.tiles) paint(z, tile);
                }
              }
            } catch (error) { /* the live mark says it */ }
            asking = false;
            if (again) { again = false; refresh(); }
          }

          function paint(z, tile) {
            const key = z + '/' + tile.x + '/' + tile.y;
            known.set(key, tile);
            if (known.size > 4000) known = new Map([[key, tile]]);
            const cell = cells.get(key);
            if (!cell) return;
            cell.className = cell.className.replace(/ ?is-\w+/g, '') + ' is-' + tile.state;
            let note = words[tile.state];
            if (tile.ttl !== undefined) {
              note += tile.ttl > 0 ? ', ' + span(tile.ttl) + ' left' : ' since ' + span(tile.ttl);
            }
            cell.querySelector('i').textContent = note;
          }

          function detail(event, z, x, y) {
            const tile = known.get(z + '/' + x + '/' + y);
            if (!tile) return;
            const table = make('table');
            const row = (name, value) => {
              const line = make('tr');
              line.append(make('td', name), make('td', value));
              table.append(line);
            };
            row('tile', current.name + '/' + z + '/' + x + '/' + y);
            row('state', words[tile.state]);
            if (tile.size !== undefined) row('size', bytes(tile.size));
            if (tile.age !== undefined) row('age', span(tile.age));
            if (tile.ttl !== undefined) row(tile.ttl > 0 ? 'fresh for' : 'stale for', span(tile.ttl));
            if (tile.blob) row('blob', tile.blob + '…');
            L.popup({ autoPan: false }).setLatLng(map.mouseEventToLatLng(event)).setContent(table).openOn(map);
          }

          // --- life
          let started = false;
          async function poll() {
            let isLive = false;
            try {
              const answer = await fetch(own + 'stats.json', { cache: 'no-store' });
              if (answer.ok) {
                const stats = await answer.json();
                isLive = true;
                if (!started) { started = true; start(stats.sources); }
                show(stats);
              }
            } catch (error) { /* said below */ }
            $('live').classList.toggle('off', !isLive);
            text('live', isLive ? 'live' : 'no connection');
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
            try { localStorage.setItem('tileproxy-theme', theme); } catch (error) { /* as above */ }
          });
        })();
        """#
}
