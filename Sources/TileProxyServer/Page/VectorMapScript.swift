extension MapPage {
    /// The script that draws vector tiles as outlines, lists their layers and describes what is clicked.
    ///
    /// What tiles say is only ever shown as text nodes.
    static let vectorMapScript = #"""
        'use strict';
        const VectorMap = (function () {
          const { $, make } = PageTools;

          // What is kept of tiles that are not shown, and how much of one tile is drawn.
          const kept = { tiles: 200, bytes: 64 << 20 };
          const most = { segments: 400000, length: 3e6, names: 100, found: 12, properties: 60, label: 80 };

          const brief = (text) => (text.length > most.label ? text.slice(0, most.label) + '…' : text);
          const isDark = () => getComputedStyle(document.documentElement).colorScheme === 'dark';
          // Neighbours in the list are far apart on the colour wheel.
          const colourOf = (number) => 'hsl(' + (212 + number * 137.5) % 360 + ' '
            + (isDark() ? '75% ' + (62 + number % 2 * 10) + '%' : '72% ' + (36 - number % 2 * 8) + '%') + ')';

          // On a phone the list would cover the map.
          if (matchMedia('(max-width: 820px)').matches) $('layers').open = false;

          // --- reading
          async function gather(stream) {
            const reader = stream.getReader(), parts = [];
            let size = 0;
            for (;;) {
              const { done, value } = await reader.read();
              if (done) break;
              size += value.length;
              if (size > VectorTile.limits.bytes) {
                await reader.cancel();
                throw new VectorTile.Unreadable('it is larger than ' + (VectorTile.limits.bytes >> 20) + ' MiB');
              }
              parts.push(value);
            }
            const bytes = new Uint8Array(size);
            let at = 0;
            for (const part of parts) { bytes.set(part, at); at += part.length; }
            return bytes;
          }

          async function bodyOf(answer) {
            if (!answer.body) return new Uint8Array();
            const bytes = await gather(answer.body);
            if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
            // Compressed, though the answer does not say so.
            try {
              return await gather(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip')));
            } catch (error) {
              throw error instanceof VectorTile.Unreadable ? error : new VectorTile.Unreadable('its gzip data is damaged');
            }
          }

          // The layers of a tile, or what is wrong with it; rejected only if it is given up.
          async function load(url, signal) {
            try {
              const answer = await fetch(url, { signal });
              if (answer.status === 404 || answer.status === 410) return { layers: [], size: 0 };
              if (!answer.ok) return { layers: [], size: 0, problem: 'tile cannot be had: HTTP ' + answer.status, passes: true };
              const bytes = await bodyOf(answer);
              return { layers: VectorTile.decode(bytes), size: bytes.length };
            } catch (error) {
              if (error instanceof VectorTile.Unreadable) {
                return { layers: [], size: 0, problem: 'tile cannot be read: ' + error.message };
              }
              if (signal.aborted) throw error;
              return { layers: [], size: 0, problem: 'tile cannot be had: no connection', passes: true };
            }
          }

          // --- drawing, a few milliseconds at a time, so that the page stays alive with tiles of any size
          const jobs = new Map();
          let isWorking = false;
          function schedule(box, job) {
            box.classList.remove('is-drawn');
            jobs.delete(box);
            jobs.set(box, job);
            if (!isWorking) { isWorking = true; setTimeout(work); }
          }
          function work() {
            const end = performance.now() + 12;
            for (const [box, job] of jobs) {
              let isDone = false;
              try {
                while (!(isDone = job.next().done) && performance.now() < end) { /* the next part */ }
              } catch (error) {
                isDone = true;
                tell(box, 'tile cannot be drawn');
              }
              if (isDone) jobs.delete(box);
              if (performance.now() >= end) break;
            }
            isWorking = jobs.size > 0;
            if (isWorking) setTimeout(work);
          }

          function tell(box, problem) {
            box.replaceChildren(box.firstChild, ...(problem ? [make('b', problem)] : []));
          }

          class Enough extends Error {}

          // Follows geometries and adds what is seen of them to the canvas: nothing that lies beyond it, no steps of less
          // than half a pixel, and no edges of polygons that were cut at the tile's own edge.
          class Pen {
            constructor(context, view, extent, budget) {
              this.context = context;
              this.scale = view.side * view.times / extent;
              this.left = view.x * view.side;
              this.top = view.y * view.side;
              this.view = view;
              this.budget = budget;
              this.count = 0;
            }
            // Where edges of polygons are the cuts of the tile and not of the map.
            limits(isPolygon) {
              const { side, times, x, y } = this.view, far = 4 * this.view.ratio, near = isPolygon ? -0.01 : far;
              this.x0 = x === 0 ? -near : -far;
              this.y0 = y === 0 ? -near : -far;
              this.x1 = side + (x === times - 1 ? near : far);
              this.y1 = side + (y === times - 1 ? near : far);
            }
            sees(box) {
              const far = 6 * this.view.ratio, side = this.view.side;
              return box[2] * this.scale - this.left >= -far && box[0] * this.scale - this.left <= side + far
                && box[3] * this.scale - this.top >= -far && box[1] * this.scale - this.top <= side + far;
            }
            begin() { this.context.beginPath(); this.count = 0; }
            move(x, y) {
              this.px = this.startX = x * this.scale - this.left;
              this.py = this.startY = y * this.scale - this.top;
              this.isDown = false;
              if (this.isPoint) {
                this.spend(8);
                const size = 3 * this.view.ratio;
                this.context.moveTo(this.px + size, this.py);
                this.context.arc(this.px, this.py, size, 0, 7);
              }
            }
            line(x, y) { this.to(x * this.scale - this.left, y * this.scale - this.top, false); }
            close() { this.to(this.startX, this.startY, true); }
            to(x, y, isLast) {
              const { px, py } = this;
              if (x <= this.x0 && px <= this.x0 || x >= this.x1 && px >= this.x1
                || y <= this.y0 && py <= this.y0 || y >= this.y1 && py >= this.y1) {
                this.px = x; this.py = y; this.isDown = false;
                return;
              }
              const length = Math.abs(x - px) + Math.abs(y - py);
              if (length < 0.5 && !isLast) return;
              this.spend(length);
              // Far beyond the canvas numbers lose their meaning.
              const fit = (n) => Math.max(-1e6, Math.min(1e6, n));
              if (!this.isDown) this.context.moveTo(fit(px), fit(py));
              this.context.lineTo(fit(x), fit(y));
              this.px = x; this.py = y; this.isDown = true;
            }
            spend(length) {
              this.count++;
              this.budget.segments--;
              this.budget.length -= Math.min(length, 2 * this.view.side) / this.view.ratio;
              if (this.budget.segments < 0 || this.budget.length < 0) throw new Enough();
            }
          }

          function* draw(box, view, layers, colours, chosen) {
            const canvas = box.firstChild, context = canvas.getContext('2d');
            const budget = { segments: most.segments, length: most.length };
            context.clearRect(0, 0, canvas.width, canvas.height);
            try {
              for (const layer of layers) {
                const colour = colours(layer.name);
                if (!colour) continue;
                context.strokeStyle = context.fillStyle = colour;
                context.lineJoin = 'round';
                const pen = new Pen(context, view, layer.extent, budget);
                const end = () => {
                  if (pen.isPoint) context.fill(); else context.stroke();
                  pen.begin();
                };
                for (const type of [3, 2, 1]) {
                  pen.isPoint = type === 1;
                  pen.limits(type === 3);
                  context.lineWidth = (type === 2 ? 1.4 : 1) * view.ratio;
                  pen.begin();
                  let passed = 0;
                  for (const feature of layer.features) {
                    passed += 20;
                    if (feature.type === type && feature.box && pen.sees(feature.box)) {
                      VectorTile.walk(feature, pen);
                      passed += feature.points;
                      if (pen.count > 2000) end();
                    }
                    if (passed > 20000) { passed = 0; yield; }
                  }
                  end();
                }
              }
              for (const { layer, feature } of chosen) {
                const pen = new Pen(context, view, layer.extent, budget);
                pen.isPoint = feature.type === 1;
                pen.limits(feature.type === 3);
                context.strokeStyle = context.fillStyle = colours(layer.name) || 'transparent';
                context.lineWidth = 3.5 * view.ratio;
                pen.begin();
                VectorTile.walk(feature, pen);
                if (pen.isPoint) { context.lineWidth = 6 * view.ratio; context.fill(); }
                context.stroke();
              }
            } catch (error) {
              if (!(error instanceof Enough)) throw error;
              context.stroke();
              tell(box, 'drawn in part: the tile has too many lines');
            }
            box.classList.add('is-drawn');
          }

          // --- a source on the map
          // The names of the layers that are off, by source.
          const hidden = new Map();

          // - options: those of a grid layer, without maxNativeZoom: larger zooms are drawn from the last one's tiles.
          // - url: (z, x, y) to the place of a tile; about: the place of the TileJSON.
          function create(map, source, options, url, about) {
            const move = options.zoomOffset ? -options.zoomOffset : 0;
            const tiles = new Map(), boxes = new Map(), names = new Map();
            const off = hidden.get(source.route) || new Set();
            hidden.set(source.route, off);
            let chosen = null, isGone = false;

            // Layers that are not listed are switched together, by the name null.
            const isShown = (name) => !off.has(names.has(name) ? name : null);
            const colours = (name) => (!isShown(name) ? null : names.has(name) ? colourOf(names.get(name)) : 'gray');

            // --- the list of layers
            const list = $('layer-list');
            function add(name) {
              if (names.has(name)) return;
              if (names.size === most.names) {
                $('layer-note').textContent = 'There are more layers. They are drawn in gray.';
                return;
              }
              names.set(name, names.size);
              const label = make('label'), box = make('input'), mark = make('i');
              box.type = 'checkbox';
              box.checked = isShown(name);
              box.dataset.layer = name;
              box.addEventListener('change', () => {
                if (box.checked) off.delete(name); else off.add(name);
                redraw();
              });
              mark.style.background = colourOf(names.get(name));
              label.append(box, mark, make('span', brief(name) || '(no name)'));
              list.append(label);
              $('layers').hidden = false;
            }
            function all(isOn) {
              for (const name of [null, ...names.keys()]) if (isOn) off.delete(name); else off.add(name);
              for (const box of list.querySelectorAll('input')) box.checked = isOn;
              redraw();
            }
            function recolour() {
              for (const box of list.querySelectorAll('input')) {
                box.nextElementSibling.style.background = colourOf(names.get(box.dataset.layer));
              }
              redraw();
            }

            // --- tiles
            const described = (async () => {
              try {
                const answer = await fetch(about, { signal: AbortSignal.timeout(5000) });
                const layers = answer.ok ? (await answer.json()).vector_layers : null;
                if (isGone || !Array.isArray(layers)) return;
                for (const layer of layers) if (layer && typeof layer.id === 'string') add(layer.id);
              } catch (error) { /* the tiles name their layers too */ }
            })();

            function want(z, x, y) {
              const name = z + '/' + x + '/' + y;
              let tile = tiles.get(name);
              if (tile) tiles.delete(name);
              else {
                tile = { users: 0, control: new AbortController(), content: null };
                tile.ready = Promise.all([load(url(z, x, y), tile.control.signal), described])
                  .then(([content]) => { tile.content = content; });
              }
              // What was wanted last is at the end.
              tiles.set(name, tile);
              tile.users++;
              return [name, tile];
            }
            function release(name, tile) {
              tile.users--;
              if (tile.users === 0 && (!tile.content || tile.content.passes) && tiles.get(name) === tile) {
                tile.control.abort();
                tiles.delete(name);
              }
              let bytes = 0;
              for (const { content } of tiles.values()) bytes += content ? content.size : 0;
              for (const [other, { users, content }] of tiles) {
                if (tiles.size <= kept.tiles && bytes <= kept.bytes) break;
                if (users > 0) continue;
                bytes -= content ? content.size : 0;
                tiles.delete(other);
              }
            }

            // The tile of the source, and which part of it is shown: all, or past its last zoom one of times * times.
            function origin(coords) {
              const z = coords.z - move, levels = Math.max(0, z - source.maxzoom), times = 2 ** levels;
              const x = Math.floor(coords.x / times), y = Math.floor(coords.y / times);
              return { z: z - levels, x, y, times, part: [coords.x - x * times, coords.y - y * times] };
            }

            function render(box, { tile, view }) {
              if (!tile.content || isGone) return;
              tell(box, tile.content.problem);
              const marked = chosen ? tile.content.layers.flatMap((layer) => (layer.name !== chosen.layer.name ? []
                : layer.features.filter((feature) => feature === chosen.feature
                  || chosen.id !== null && VectorTile.idOf(feature) === chosen.id)
                  .map((feature) => ({ layer, feature })))) : [];
              schedule(box, draw(box, view, tile.content.layers, colours, marked));
            }
            function redraw() { for (const [box, shown] of boxes) render(box, shown); }
            function choose(hit) {
              if (!hit && !chosen) return;
              chosen = hit ? { ...hit, id: VectorTile.idOf(hit.feature) } : null;
              redraw();
            }

            const Grid = L.GridLayer.extend({
              createTile: function (coords, done) {
                const box = make('div', undefined, 'vector'), canvas = make('canvas');
                box.dataset.tile = coords.z - move + '/' + coords.x + '/' + coords.y;
                box.append(canvas);
                const ratio = Math.min(2, window.devicePixelRatio || 1), { z, x, y, times, part } = origin(coords);
                canvas.width = canvas.height = Math.round(source.tileSize * ratio);
                const [name, tile] = want(z, x, y);
                const shown = { name, tile, zoom: coords.z, view: { side: canvas.width, ratio, times, x: part[0], y: part[1] } };
                boxes.set(box, shown);
                tile.ready.then(() => {
                  if (isGone || !boxes.has(box)) return;
                  for (const layer of tile.content.layers) add(layer.name);
                  render(box, shown);
                  done(null, box);
                }, () => { /* it was given up */ });
                return box;
              }
            });
            const layer = new Grid(options);
            layer.on('tileunload', (event) => {
              const shown = boxes.get(event.tile);
              if (!shown) return;
              boxes.delete(event.tile);
              jobs.delete(event.tile);
              release(shown.name, shown.tile);
            });

            // Leaflet may leave tiles of another zoom below those of this one, which hide them only if they are pictures.
            let isZooming = false;
            function tidy() {
              if (isZooming) return;
              const isDone = !layer.isLoading();
              for (const [box, { zoom }] of boxes) box.hidden = isDone && zoom !== map.getZoom();
            }
            const onZoom = (event) => { isZooming = event.type === 'zoomstart'; tidy(); };
            map.on('zoomstart zoomend', onZoom);
            layer.on('load', tidy);

            // --- what is at a place
            function describe(place) {
              const zoom = map.getZoom(), count = 2 ** (zoom - move);
              const point = map.project(place, zoom).divideBy(source.tileSize);
              const column = Math.floor(point.x), row = Math.floor(point.y);
              const { z, x, y, times, part } = origin({ z: zoom, x: (column % count + count) % count, y: row });
              const tile = tiles.get(z + '/' + x + '/' + y), content = tile && tile.content;
              const box = make('div', undefined, 'found');
              const say = (words) => { box.append(make('p', words)); return { box, words }; };
              choose(null);
              if (!content) return say('The tile is not loaded.');
              if (content.problem) return say(content.problem);
              const hits = VectorTile.find(content.layers, (part[0] + point.x - column) / times,
                (part[1] + point.y - row) / times, 6 / source.tileSize / times, isShown);
              if (hits.length === 0) return say('Nothing is here in the layers that are shown.');
              choose(hits[0]);
              for (const hit of hits.slice(0, most.found)) box.append(section(hit));
              if (hits.length > most.found) box.append(make('p', 'and ' + (hits.length - most.found) + ' more here'));
              return { box, words: hits.slice(0, 3).map(titleOf).join('; ') };
            }

            const titleOf = ({ layer, feature }) => brief(layer.name) + ': ' + VectorTile.geometries[feature.type]
              + (feature.id ? ' ' + VectorTile.idOf(feature) : '');

            function section(hit) {
              const part = make('section'), title = make('h3'), mark = make('i');
              mark.style.background = colours(hit.layer.name) || '';
              title.append(mark, titleOf(hit));
              part.append(title);
              try {
                const { rows, left } = VectorTile.properties(hit.layer, hit.feature, most.properties);
                const table = make('table');
                for (const [key, value] of rows) {
                  const line = make('tr');
                  line.append(make('td', brief(key)), make('td', value === null ? '–' : String(value)));
                  table.append(line);
                }
                if (rows.length > 0) part.append(table); else part.append(make('p', 'no properties'));
                if (left > 0) part.append(make('p', 'and ' + left + ' more properties'));
              } catch (error) {
                if (!(error instanceof VectorTile.Unreadable)) throw error;
                part.append(make('p', 'properties cannot be read: ' + error.message));
              }
              return part;
            }

            const theme = matchMedia('(prefers-color-scheme: dark)');
            theme.addEventListener('change', recolour);
            $('layers-all').onclick = () => all(true);
            $('layers-none').onclick = () => all(false);
            layer.on('remove', () => {
              isGone = true;
              theme.removeEventListener('change', recolour);
              map.off('zoomstart zoomend', onZoom);
              list.replaceChildren();
              $('layer-note').textContent = '';
              $('layers').hidden = true;
            });
            layer.describe = describe;
            layer.recolour = recolour;
            layer.forget = () => choose(null);
            return layer;
          }

          return { create };
        })();
        """#
}
