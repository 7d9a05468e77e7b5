// The picture of a map: levels, each the inside of one module, opened in place in the boxes of their modules.

// `change`: of a pass, whose marks stand in place of those of another model.
const mapChoice = { level: 'fused', open: new Set(), change: null };

function mapOf(level) {
  return data.maps.find((map) => map.program === state.program && map.level === level);
}

// For each map the level of each module, and the operations that are the module's own.
const mapIndexes = new Map();
function indexOf(map) {
  if (!mapIndexes.has(map)) {
    const levels = new Map(), own = new Map();
    map.levels.forEach((level) => level.modules.forEach((module) => levels.set(module, level)));
    itemsOf(map).forEach((item, n) => push(own, item.module, n));
    mapIndexes.set(map, { levels, own });
  }
  return mapIndexes.get(map);
}
function itemsOf(map) {
  const each = data.programs[map.program];
  return map.level === 'fused' ? each.ops : map.level === 'plan' ? each.steps : each.primitives;
}

const moduleOfPath = new Map(data.modules.map((module, n) => [module.path, n]));

// A level stands for all modules with such an inside: for another than the first, its own operations and modules take
// the places of those.
function boxesOf(map, level, module) {
  const first = level.modules[0];
  if (module === first) return level.boxes;
  const { own } = indexOf(map), mine = own.get(module) || [], theirs = own.get(first) || [];
  const from = data.modules[first].path, to = data.modules[module].path;
  return level.boxes.map((box) => {
    const moved = Object.assign({}, box);
    if (box.op !== undefined) moved.op = mine[theirs.indexOf(box.op)];
    if (box.module !== undefined) {
      const path = to + data.modules[box.module].path.slice(from.length);
      moved.module = moduleOfPath.has(path) ? moduleOfPath.get(path) : box.module;
    }
    return moved;
  });
}

// The modules that a box stands for: siblings that are numbered and equal inside.
function membersOf(map, box, around) {
  if (box.module === undefined || box.times < 2) return box.module === undefined ? [] : [box.module];
  const { levels } = indexOf(map);
  let child = box.module;
  while (data.modules[child].parent !== around && data.modules[child].parent >= 0) child = data.modules[child].parent;
  const rest = data.modules[box.module].path.slice(data.modules[child].path.length), level = levels.get(child);
  return (childrenOf.get(around) || []).filter((other) => levels.get(other) === level)
    .map((other) => moduleOfPath.get(data.modules[other].path + rest)).filter((other) => other !== undefined);
}

// As written, the operation that computes it now.
const opOfPrimitive = new Map();
data.programs.forEach((each, p) => each.ops.forEach((op, n) =>
  op.fused_from.forEach((primitive) => { if (!opOfPrimitive.has(`${p}.${primitive}`))
    opOfPrimitive.set(`${p}.${primitive}`, n); })));

function boxThing(box) {
  if (box.module !== undefined) return `module:${box.module}`;
  if (box.op === undefined) return null;
  if (mapChoice.level === 'fused') return `op:${state.program}.${box.op}`;
  if (mapChoice.level === 'plan') return `step:${state.program}.${box.op}`;
  const op = opOfPrimitive.get(`${state.program}.${box.op}`);
  return op === undefined ? null : `op:${state.program}.${op}`;
}

function boxDetails(box) {
  if (box.module !== undefined)
    return [modulePath(box.module), data.modules[box.module].layer].filter(Boolean).join('\n');
  if (box.op === undefined) return box.label;
  if (mapChoice.level === 'plan') {
    const step = program().steps[box.op], work = stepWork(step, state.values, state.machine);
    return [`${box.op}: ${stepTitle(program(), step)}`, work.flop ? showFlop(work.flop) : '',
            step.form || ''].filter(Boolean).join('\n');
  }
  const op = (mapChoice.level === 'fused' ? program().ops : program().primitives)[box.op];
  return [op.op, op.name, op.expr, op.shape].filter(Boolean).join('\n');
}

// The same cut that the layout was made with.
function boxLabel(box) {
  const text = box.label, label = text.length <= 40 ? text : `${text.slice(0, 18)} ... ${text.slice(-18)}`;
  return box.times > 1 ? `${label} (× ${box.times})` : label;
}

// ---- places ----

const FRAME = { side: 10, top: 24, letter: 6.6 };

// A monotone map of one axis: where a span is opened, it grows to `size`; where several overlap, the larger stretch
// holds. So boxes that did not overlap do not afterwards.
function stretched(spans) {
  const ends = [...new Set(spans.flatMap(({ from, to }) => [from, to]))].sort((a, b) => a - b), places = [];
  let at = ends.length ? ends[0] : 0;
  ends.forEach((end, i) => {
    places.push(at);
    if (i + 1 === ends.length) return;
    const within = spans.filter(({ from, to }) => from <= end && to >= ends[i + 1]);
    at += (ends[i + 1] - end) * Math.max(1, ...within.map(({ from, to, size }) => size / Math.max(1e-6, to - from)));
  });
  return (value) => {
    if (!ends.length || value <= ends[0]) return value;
    const last = ends.length - 1;
    if (value >= ends[last]) return places[last] + value - ends[last];
    let i = 0;
    while (ends[i + 1] < value) i++;
    return places[i] + (value - ends[i]) / (ends[i + 1] - ends[i]) * (places[i + 1] - places[i]);
  };
}

// The module whose inside is shown in a box: that of the selection if it is one of these, else one that is open.
function openedIn(map, box, around, wanted) {
  const members = membersOf(map, box, around);
  const chosen = members.find((module) => wanted >= 0 && isWithin(wanted, module) && mapChoice.open.has(module));
  const open = chosen !== undefined ? chosen : members.find((module) => mapChoice.open.has(module));
  const level = open === undefined ? null : indexOf(map).levels.get(open);
  return level && level.w ? open : undefined;
}

// A level with what is opened in it: { w, h, boxes: [{ box, x, y, w, h, inside }], lines }.
function placed(map, module, wanted) {
  const level = indexOf(map).levels.get(module);
  const boxes = boxesOf(map, level, module).map((box, index) => {
    const open = openedIn(map, box, module, wanted);
    const inside = open === undefined ? null : placed(map, open, wanted);
    return { box: open === undefined ? box : Object.assign({}, box, { module: open }), index, inside };
  }).filter(({ box }) => box.w);
  const spansOf = (from, length, size) => boxes.filter(({ inside }) => inside).map(({ box, inside }) =>
    ({ from: box[from], to: box[from] + box[length], size: size(box, inside) }));
  const title = (box) => FRAME.letter * boxLabel(box).length + 3 * FRAME.side;
  const x = stretched(spansOf('x', 'w', (box, inside) => Math.max(inside.w + 2 * FRAME.side, title(box))));
  const y = stretched(spansOf('y', 'h', (box, inside) => inside.h + FRAME.top + FRAME.side));
  for (const one of boxes) {
    const { box, inside } = one;
    const left = x(box.x), right = x(box.x + box.w), top = y(box.y), bottom = y(box.y + box.h);
    if (inside) Object.assign(one, { x: left, y: top, w: right - left, h: bottom - top });
    else Object.assign(one, { x: (left + right - box.w) / 2, y: (top + bottom - box.h) / 2, w: box.w, h: box.h });
  }
  const byIndex = new Map(boxes.map((one) => [one.index, one]));
  const lines = level.lines.filter((line) => line.points && line.points.length >= 10)
    .map((line) => ({ path: linePath(line.points, x, y, byIndex.get(line.from), byIndex.get(line.to)) }));
  return { w: x(level.w), h: y(level.h), boxes, lines };
}

// Cubic curves, then a straight piece to the tip of the arrow, stretched. Both ends stay where they were at their
// boxes, which may have stayed small where their row grew; the points next to them go along.
function linePath(points, x, y, from, to) {
  const pairs = [];
  for (let i = 0; i + 1 < points.length; i += 2) pairs.push([x(points[i]), y(points[i + 1])]);
  const end = pairs.length - 1;
  const follow = (one, at, ...along) => {
    if (!one) return;
    const { box } = one, [px, py] = [points[2 * at], points[2 * at + 1]];
    const dx = one.x + (px - box.x) / box.w * one.w - pairs[at][0];
    const dy = one.y + (py - box.y) / box.h * one.h - pairs[at][1];
    for (const i of along) pairs[i] = [pairs[i][0] + dx, pairs[i][1] + dy];
  };
  follow(from, 0, 0, 1);
  follow(to, end, ...new Set([end, end - 1, Math.max(2, end - 2)]));
  const text = pairs.map((pair) => pair.map((value) => value.toFixed(1)).join(' '));
  return `M${text[0]}C${text.slice(1, -1).join(' ')}L${text[end]}`;
}

// ---- the drawing ----

function boxToggle(module, x, y, isOpen) {
  const name = modulePath(module), what = `${isOpen ? 'close' : 'open'} ${name}`;
  const toggle = svg('g', { class: 'opener', role: 'button', tabindex: '0', 'data-open': String(module),
                            'aria-expanded': isOpen ? 'true' : 'false', 'aria-label': what },
    svg('title', {}, what), svg('circle', { cx: x, cy: y, r: 6 }),
    svg('path', { d: `M${x - 3} ${y}H${x + 3}${isOpen ? '' : `M${x} ${y - 3}V${y + 3}`}` }));
  const change = (event) => {
    event.stopPropagation();
    event.preventDefault();
    if (isOpen) mapChoice.open.delete(module);
    else mapChoice.open.add(module);
    mapChoice.show();
  };
  toggle.addEventListener('click', change);
  toggle.addEventListener('keydown', (event) => { if (event.key === 'Enter' || event.key === ' ') change(event); });
  return toggle;
}

function canOpen(map, box) {
  const level = box.module === undefined ? null : indexOf(map).levels.get(box.module);
  return Boolean(level && level.w && level.boxes.length);
}

function boxNode(map, one) {
  const { box, x, y, w, h, inside } = one, thing = boxThing(box), differs = differenceOf(box);
  const node = svg('g', { class: `box ${box.kind}${inside ? ' open' : ''}${differs ? ` ${differs.kind}` : ''}`,
                          'data-thing': thing, tabindex: thing ? '0' : null, role: 'option',
                          'aria-selected': thing && selection.related.has(thing) ? 'true' : 'false',
                          'aria-label': boxLabel(box) + (differs ? `, ${differs.text}` : '') },
    svg('title', {}, boxDetails(box) + (differs ? `\n${differs.text}` : '')));
  const round = box.kind === 'op' ? 6 : box.kind === 'module' ? 0 : h / 2;
  node.append(svg('rect', { x, y, width: w, height: h, rx: round }));
  if (box.kind === 'module' && !inside)
    node.append(svg('rect', { class: 'inner', x: x + 3, y: y + 3, width: w - 6, height: h - 6 }));
  node.append(inside ? svg('text', { x: x + FRAME.side + 8, y: y + 15 }, openLabel(box))
    : svg('text', { x: x + w / 2, y: y + h / 2 + 4, 'text-anchor': 'middle' }, boxLabel(box)));
  if (differs) node.append(svg('text', { class: 'sign', x: x + w - 2, y: y - 2, 'text-anchor': 'end' }, differs.sign));
  return node;
}

// Of several equal modules, which one is open.
function openLabel(box) {
  return box.times > 1 ? `${data.modules[box.module].path} (× ${box.times})` : boxLabel(box);
}

function drawLevel(map, level, dx, dy, to) {
  const group = svg('g', { transform: `translate(${dx} ${dy})` });
  to.append(group);
  for (const one of level.boxes) if (one.inside) group.append(boxNode(map, one));
  for (const line of level.lines) group.append(svg('path', { class: 'edge', d: line.path, 'marker-end': 'url(#tip)' }));
  for (const one of level.boxes) {
    if (!one.inside) group.append(boxNode(map, one));
    if (one.box.module !== undefined && canOpen(map, one.box))
      group.append(boxToggle(one.box.module, one.x, one.inside ? one.y + 11 : one.y, Boolean(one.inside)));
    if (one.inside)
      drawLevel(map, one.inside, one.x + (one.w - one.inside.w) / 2, one.y + FRAME.top, group);
  }
}

function mapPicture(map, wanted) {
  const margin = 10, level = placed(map, 0, wanted), w = level.w + 2 * margin, h = level.h + 2 * margin;
  const many = level.boxes.length > 40;
  const picture = svg('svg', { viewBox: `${-margin} ${-margin} ${w} ${h}`, width: w, height: h,
                               class: many ? 'map dense' : 'map', role: 'listbox',
                               'aria-label': 'operations and modules' });
  picture.append(svg('defs', {}, svg('marker', { id: 'tip', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 7,
                                                 markerHeight: 7, orient: 'auto' },
                                     svg('path', { class: 'tip', d: 'M0 0L8 4L0 8Z' }))));
  drawLevel(map, level, 0, 0, picture);
  return picture;
}

// Where there is no layout, and for whoever reads the page instead of looking at it.
function levelList(level, boxes) {
  const name = (i) => boxLabel(boxes[i]);
  return el('ul', { class: 'boxes', role: 'listbox', 'aria-label': 'operations and modules' },
    ...boxes.map((box, i) => {
      const thing = boxThing(box), to = level.lines.filter((line) => line.from === i).map((line) => name(line.to));
      return el('li', { 'data-thing': thing, tabindex: thing ? '0' : null, role: 'option', 'aria-selected': 'false' },
        `${boxLabel(box)}${to.length ? ` → ${to.join(', ')}` : ''}`);
    }));
}
