// The map: the inside of one module with the modules in it closed, and all modules as a tree.

const mapChoice = { level: 'fused', module: 0 };

function mapOf(level) {
  return data.maps.find((map) => map.program === state.program && map.level === level);
}

// The inside of a module; of one that holds another module alone, of that one. Null: nothing is computed there.
function levelOf(module) {
  const map = mapOf(mapChoice.level);
  let level = map && map.levels.find((each) => each.modules.includes(module));
  while (level && level.boxes.length === 1 && level.boxes[0].kind === 'module' && module !== 0) {
    const inner = level.boxes[0].module;
    level = map.levels.find((each) => each.modules.includes(inner));
  }
  return level || null;
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
  const op = opOfPrimitive.get(`${state.program}.${box.op}`);
  return op === undefined ? null : `op:${state.program}.${op}`;
}

function boxDetails(box) {
  const list = mapChoice.level === 'fused' ? program().ops : program().primitives, op = list[box.op];
  if (!op) return box.label;
  return [op.op, op.name, op.expr, op.shape].filter(Boolean).join('\n');
}

// The same cut that the layout was made with.
function boxLabel(box) {
  const text = box.label, label = text.length <= 40 ? text : `${text.slice(0, 18)} ... ${text.slice(-18)}`;
  return box.times > 1 ? `${label} (× ${box.times})` : label;
}

// ---- the picture ----

function boxNode(box) {
  const thing = boxThing(box), class_ = `box ${box.kind}`;
  const node = svg('g', { class: class_, 'data-thing': thing, tabindex: thing ? '0' : null, role: 'option',
                          'aria-selected': thing && selection.related.has(thing) ? 'true' : 'false',
                          'aria-label': boxLabel(box) }, svg('title', {}, boxDetails(box)));
  const round = box.kind === 'op' ? 6 : box.kind === 'module' ? 0 : box.h / 2;
  node.append(svg('rect', { x: box.x, y: box.y, width: box.w, height: box.h, rx: round }));
  if (box.kind === 'module')
    node.append(svg('rect', { class: 'inner', x: box.x + 3, y: box.y + 3, width: box.w - 6, height: box.h - 6 }));
  node.append(svg('text', { x: box.x + box.w / 2, y: box.y + box.h / 2 + 4, 'text-anchor': 'middle' }, boxLabel(box)));
  return node;
}

// Cubic curves, then a straight piece to the tip of the arrow.
function linePath(points) {
  const pairs = [];
  for (let i = 0; i + 1 < points.length; i += 2) pairs.push(`${points[i]} ${points[i + 1]}`);
  const tip = pairs.pop(), curves = pairs.slice(1);
  return `M${pairs[0]}C${curves.join(' ')}L${tip}`;
}

function levelPicture(level) {
  const margin = 8, w = level.w + 2 * margin, h = level.h + 2 * margin;
  const picture = svg('svg', { viewBox: `${-margin} ${-margin} ${w} ${h}`, width: w, height: h,
                               class: level.boxes.length > 40 ? 'map dense' : 'map',
                               role: 'listbox', 'aria-label': 'operations and modules' });
  picture.append(svg('defs', {}, svg('marker', { id: 'tip', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 7,
                                                 markerHeight: 7, orient: 'auto' },
                                     svg('path', { class: 'tip', d: 'M0 0L8 4L0 8Z' }))));
  for (const line of level.lines)
    if (line.points && line.points.length >= 10)
      picture.append(svg('path', { class: 'edge', d: linePath(line.points), 'marker-end': 'url(#tip)' }));
  for (const box of level.boxes) if (box.w) picture.append(boxNode(box));
  return picture;
}

// Where there is no layout, and for whoever reads the page instead of looking at it.
function levelList(level) {
  const name = (i) => boxLabel(level.boxes[i]);
  return el('ul', { class: 'boxes', role: 'listbox', 'aria-label': 'operations and modules' },
    ...level.boxes.map((box, i) => {
      const thing = boxThing(box), to = level.lines.filter((line) => line.from === i).map((line) => name(line.to));
      return el('li', { 'data-thing': thing, tabindex: thing ? '0' : null, role: 'option', 'aria-selected': 'false' },
        `${boxLabel(box)}${to.length ? ` → ${to.join(', ')}` : ''}`);
    }));
}

// ---- the tree of modules ----

const childrenOf = new Map();
data.modules.forEach((module, n) => { if (module.parent >= 0) push(childrenOf, module.parent, n); });

function treeItem(module) {
  const children = childrenOf.get(module) || [], name = module ? data.modules[module].path.split('.').pop()
      : data.model;
  const label = el('span', { 'data-thing': `module:${module}`, 'aria-selected': 'false' },
    name + (data.modules[module].layer ? ` · ${data.modules[module].layer}` : ''));
  const item = el('li', { role: 'treeitem', tabindex: module ? '-1' : '0',
                          'aria-expanded': children.length ? 'false' : null }, label);
  item.expand = (open) => {
    if (!children.length) return;
    item.setAttribute('aria-expanded', open ? 'true' : 'false');
    if (open && !item.querySelector('ul')) item.append(el('ul', { role: 'group' }, ...children.map(treeItem)));
    const group = item.querySelector('ul');
    if (group) group.hidden = !open;
    markSelection(item);
  };
  if (children.length) {
    const toggle = el('button', { type: 'button', class: 'toggle', tabindex: '-1', 'aria-label': `open ${name}` }, '▸');
    toggle.addEventListener('click', (event) => {
      event.stopPropagation();
      const open = item.getAttribute('aria-expanded') !== 'true';
      toggle.textContent = open ? '▾' : '▸';
      item.expand(open);
    });
    item.prepend(toggle);
  }
  return item;
}

function moduleTree() {
  const tree = el('ul', { role: 'tree', 'aria-label': 'modules', class: 'tree' }, treeItem(0));
  tree.firstChild.querySelector('.toggle') && tree.firstChild.querySelector('.toggle').click();
  tree.addEventListener('keydown', (event) => {
    const item = event.target.closest('[role=treeitem]');
    if (!item) return;
    const shown = [...tree.querySelectorAll('[role=treeitem]')].filter((each) => !each.closest('ul[hidden]'));
    const move = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    const toggle = item.querySelector(':scope > .toggle'), open = item.getAttribute('aria-expanded');
    if (move) (shown[shown.indexOf(item) + move] || item).focus();
    else if ((event.key === 'ArrowRight' && open === 'false') || (event.key === 'ArrowLeft' && open === 'true'))
      toggle.click();
    else if (event.key === 'Enter') choose(item.querySelector('[data-thing]').getAttribute('data-thing'));
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return tree;
}

// ---- the view ----

function pathLinks(module) {
  const parts = [];
  for (let m = module; m >= 0; m = data.modules[m].parent) {
    const name = m ? data.modules[m].path.split('.').pop() : data.model;
    parts.unshift(el('button', { type: 'button', class: 'link', 'data-thing': `module:${m}` }, name));
  }
  return parts.flatMap((part, i) => (i ? [' › ', part] : [part]));
}

function showMap(place) {
  const level = levelOf(mapChoice.module);
  clear(place);
  place.append(el('p', { class: 'path' }, ...pathLinks(mapChoice.module)));
  if (!level || !level.boxes.length) {
    place.append(el('p', { class: 'quiet' }, 'Nothing is computed here.'));
    return;
  }
  const alike = level.modules.filter((module) => module !== mapChoice.module);
  if (alike.length)
    place.append(el('p', { class: 'quiet' }, `Equal inside: ${alike.slice(0, 6).map(modulePath).join(', ')}` +
      (alike.length > 6 ? ` and ${alike.length - 6} more` : '')));
  place.append(level.w ? el('div', { class: 'scroll picture', tabindex: '0', role: 'group',
                                     'aria-label': 'picture' }, levelPicture(level)) : levelList(level));
}

function viewMap(section) {
  const place = el('div', { class: 'map-place' }), level = el('select', { 'aria-label': 'operations' },
    el('option', { value: 'fused' }, 'after the passes'), el('option', { value: 'primitive' }, 'as written'));
  level.addEventListener('change', () => {
    mapChoice.level = level.value;
    showMap(place);
  });
  section.append(el('p', { class: 'bar-of-view' }, el('label', {}, 'operations ', level),
    el('span', { class: 'quiet' }, 'A click on a module opens it; the path leads out. Escape goes out to the model.')),
    el('div', { class: 'map-view' }, moduleTree(), place));
  const follow = () => {
    const [kind, a, b] = selection.thing ? numbersOf(selection.thing) : [];
    const related = [...selection.related].find((thing) => thing.startsWith('op:'));
    if (kind === 'module') mapChoice.module = a;
    else if (kind === 'op') mapChoice.module = program().ops[b].module;
    else if (related && numbersOf(related)[1] === state.program)
      mapChoice.module = program().ops[numbersOf(related)[2]].module;
    else if (!kind) mapChoice.module = 0;
    showMap(place);
    markSelection(place);
  };
  whenSelected(follow);
  return follow;
}
