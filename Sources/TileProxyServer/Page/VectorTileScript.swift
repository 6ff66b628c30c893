extension MapPage {
    /// The script that reads Mapbox Vector Tiles, version 2.1; it touches neither the document nor the network.
    ///
    /// Tiles come from anywhere, so each loop is bounded by the bytes that are there, whatever counts they announce.
    /// https://github.com/mapbox/vector-tile-spec/tree/master/2.1
    static let vectorTileScript = #"""
        'use strict';
        const VectorTile = (function () {
          const limits = { bytes: 8 << 20, items: 1 << 18, layers: 500, text: 2000 };
          const geometries = ['unknown', 'point', 'line', 'polygon'];

          class Unreadable extends Error {}
          const fail = (why) => { throw new Unreadable(why); };

          // A range of the tile's bytes, read as protobuf.
          class Part {
            constructor(bytes, at, end) { this.bytes = bytes; this.at = at; this.end = end; }
            get more() { return this.at < this.end; }
            again() { return new Part(this.bytes, this.at, this.end); }
            byte() { return this.at < this.end ? this.bytes[this.at++] : fail('it ends within a number'); }
            // The low 32 bits of a varint, as protobuf has it for a field of that type.
            uint32() {
              let byte = this.byte(), value = byte & 127;
              for (let shift = 7; byte > 127; shift += 7) {
                if (shift > 63) fail('a number has more than ten bytes');
                byte = this.byte();
                if (shift < 32) value |= (byte & 127) << shift;
              }
              return value >>> 0;
            }
            uint64() {
              let byte = this.byte(), value = BigInt(byte & 127);
              for (let shift = 7; byte > 127; shift += 7) {
                if (shift > 63) fail('a number has more than ten bytes');
                byte = this.byte();
                value |= BigInt(byte & 127) << BigInt(shift);
              }
              return BigInt.asUintN(64, value);
            }
            advance(count) {
              if (count > this.end - this.at) fail('it ends within a field');
              this.at += count;
              return this.at - count;
            }
            part() {
              const length = this.uint32(), at = this.advance(length);
              return new Part(this.bytes, at, this.at);
            }
            skip(tag) {
              switch (tag & 7) {
                case 0: this.uint32(); break;
                case 1: this.advance(8); break;
                case 2: this.advance(this.uint32()); break;
                case 5: this.advance(4); break;
                default: fail('a field has the unknown type ' + (tag & 7));
              }
            }
            text() {
              const end = Math.min(this.end, this.at + limits.text);
              const text = new TextDecoder().decode(this.bytes.subarray(this.at, end));
              return end < this.end ? text + '…' : text;
            }
          }

          // Follows a geometry: move(x, y), line(x, y), close(), in the layer's units.
          function walk(feature, to) {
            if (!feature.geometry) return;
            const part = feature.geometry.again();
            let x = 0, y = 0, isOpen = false;
            while (part.more) {
              const command = part.uint32(), kind = command & 7;
              let count = command >>> 3;
              if (kind === 7) {
                if (count !== 1 || !isOpen) fail('a ring is closed that is not open');
                isOpen = false;
                to.close();
                continue;
              }
              if (kind !== 1 && kind !== 2) fail('a geometry has the unknown command ' + kind);
              if (count * 2 > part.end - part.at) fail('a geometry announces more points than it has');
              if (kind === 2 && !isOpen) fail('a line has no start');
              for (; count > 0; count--) {
                const dx = part.uint32(), dy = part.uint32();
                x += (dx >>> 1) ^ -(dx & 1);
                y += (dy >>> 1) ^ -(dy & 1);
                if (x !== (x | 0) || y !== (y | 0)) fail('a point is not within 32 bits');
                if (kind === 1) { isOpen = true; to.move(x, y); } else to.line(x, y);
              }
            }
          }

          function readFeature(part) {
            const feature = { id: null, type: 0, tags: null, geometry: null, points: 0, box: null };
            const single = (field) => (feature[field] ? fail('a feature has two ' + field) : part.part());
            while (part.more) {
              const tag = part.uint32();
              switch (tag) {
                case 8: feature.id = part.again(); part.skip(tag); break;
                case 18: feature.tags = single('tags'); break;
                case 24: feature.type = part.uint32(); break;
                case 34: feature.geometry = single('geometry'); break;
                default: part.skip(tag);
              }
            }
            // What later versions may add is left alone, as the specification says.
            if (feature.type > 3) feature.type = 0;
            if (feature.type === 0) { feature.geometry = null; return feature; }
            let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
            const see = (x, y) => {
              feature.points++;
              if (x < left) left = x;
              if (x > right) right = x;
              if (y < top) top = y;
              if (y > bottom) bottom = y;
            };
            walk(feature, { move: see, line: see, close() {} });
            feature.box = [left, top, right, bottom];
            return feature;
          }

          function readLayer(part, count) {
            const layer = { name: null, version: 1, extent: 4096, features: [], keys: [], values: [] };
            while (part.more) {
              const tag = part.uint32();
              switch (tag) {
                case 10: layer.name = part.part().text(); break;
                case 18: count(); layer.features.push(readFeature(part.part())); break;
                case 26: count(); layer.keys.push(part.part()); break;
                case 34: count(); layer.values.push(part.part()); break;
                case 40: layer.extent = part.uint32(); break;
                case 120: layer.version = part.uint32(); break;
                default: part.skip(tag);
              }
            }
            if (layer.name === null) fail('a layer has no name');
            if (layer.version !== 1 && layer.version !== 2) fail('a layer has the unknown version ' + layer.version);
            if (layer.extent === 0) fail('a layer has no extent');
            return layer;
          }

          // The layers of a tile, its geometries checked: to walk them again cannot fail.
          function decode(bytes) {
            if (bytes.length > limits.bytes) fail('it is larger than ' + (limits.bytes >> 20) + ' MiB');
            const layers = [], tile = new Part(bytes, 0, bytes.length);
            let items = 0;
            const count = () => { if (++items > limits.items) fail('it has more than ' + limits.items + ' items'); };
            while (tile.more) {
              const tag = tile.uint32();
              if (tag !== 26) { tile.skip(tag); continue; }
              if (layers.length === limits.layers) fail('it has more than ' + limits.layers + ' layers');
              layers.push(readLayer(tile.part(), count));
            }
            return layers;
          }

          function readValue(part) {
            let value = null;
            const number = (name, size) => {
              const at = part.advance(size);
              return new DataView(part.bytes.buffer, part.bytes.byteOffset + at, size)[name](0, true);
            };
            while (part.more) {
              const tag = part.uint32();
              switch (tag) {
                case 10: value = part.part().text(); break;
                case 21: value = number('getFloat32', 4); break;
                case 25: value = number('getFloat64', 8); break;
                case 32: value = BigInt.asIntN(64, part.uint64()); break;
                case 40: value = part.uint64(); break;
                case 48: { const n = part.uint64(); value = (n >> 1n) ^ -(n & 1n); break; }
                case 56: value = part.uint32() !== 0; break;
                default: part.skip(tag);
              }
            }
            return value;
          }

          // The id of a feature as text; null without one.
          const idOf = (feature) => (feature.id ? String(feature.id.again().uint64()) : null);

          // Names and values of a feature, no more than `most`, and how many more there are.
          function properties(layer, feature, most) {
            const rows = [];
            let left = 0;
            for (const tags = feature.tags && feature.tags.again(); tags && tags.more;) {
              const key = layer.keys[tags.uint32()], value = layer.values[tags.uint32()];
              if (!key || !value) fail('a feature names a property that is not there');
              if (rows.length < most) rows.push([key.again().text(), readValue(value.again())]);
              else left++;
            }
            return { rows, left };
          }

          // The distance from a place to a feature, in the layer's units: 0 within a polygon.
          function distance(feature, px, py) {
            let best = Infinity, x0 = 0, y0 = 0, startX = 0, startY = 0, isWithin = false;
            const isPoint = feature.type === 1, isPolygon = feature.type === 3;
            const segment = (x, y) => {
              const dx = x - x0, dy = y - y0, square = dx * dx + dy * dy;
              const t = square ? Math.max(0, Math.min(1, ((px - x0) * dx + (py - y0) * dy) / square)) : 0;
              best = Math.min(best, Math.hypot(x0 + t * dx - px, y0 + t * dy - py));
              if ((y0 > py) !== (y > py) && px < x0 + (py - y0) * dx / dy) isWithin = !isWithin;
              x0 = x; y0 = y;
            };
            walk(feature, {
              move(x, y) {
                x0 = startX = x; y0 = startY = y;
                if (isPoint) best = Math.min(best, Math.hypot(x - px, y - py));
              },
              line: segment,
              close() { segment(startX, startY); }
            });
            return isPolygon && isWithin ? 0 : best;
          }

          // The features at a place, given in parts of the tile's side: points before lines before polygons, those around
          // the place before those beside it; and within these what is drawn last first.
          function find(layers, x, y, radius, isShown) {
            const found = [[], [], [], [], []];
            for (const layer of [...layers].reverse()) {
              if (!isShown(layer.name)) continue;
              const px = x * layer.extent, py = y * layer.extent, reach = radius * layer.extent;
              for (let i = layer.features.length - 1; i >= 0; i--) {
                const feature = layer.features[i], box = feature.box;
                if (!box || px < box[0] - reach || px > box[2] + reach || py < box[1] - reach || py > box[3] + reach) continue;
                const far = distance(feature, px, py);
                if (far <= reach) found[feature.type === 3 && far > 0 ? 4 : feature.type].push({ layer, feature });
              }
            }
            return found.flat();
          }

          return { decode, walk, properties, idOf, find, limits, geometries, Unreadable };
        })();
        """#
}
