// What is marked on the map: what another model has in other places, or what a pass changed.

const differing = new Map(); // thing -> { kind, sign, text }
const SIGNS = { added: '+', removed: '−', changed: '≠' };
function noteDifference(marks, thing, kind, text) {
  const known = marks.get(thing);
  if (!known) marks.set(thing, { kind, sign: SIGNS[kind], text });
  else if (known.kind !== kind) Object.assign(known, { kind: 'changed', sign: SIGNS.changed });
}
const differenceText = (group) =>
  [...group.before.map((each) => `− ${each}`), ...group.after.map((each) => `+ ${each}`)].join('\n');
for (const group of data.compare ? data.compare.groups : []) {
  const text = differenceText(group);
  for (const thing of group.ops) noteDifference(differing, `${data.compare.of_steps ? 'step' : 'primitive'}:${thing}`,
                                                group.kind, text);
  for (const module of group.modules)
    for (let m = module; m >= 0; m = data.modules[m].parent)
      noteDifference(differing, `module:${m}`, m === module ? group.kind : 'changed',
                     m === module ? text : 'differs inside');
}

// As written, what went has a mark; after the passes, what came.
function changeOnMap(pass, group) {
  const marks = new Map(), text = `${pass.name}\n${differenceText(group)}`;
  for (const n of group.went) noteDifference(marks, `primitive:${n}`, 'removed', text);
  for (const n of group.came) noteDifference(marks, `op:${n}`, 'added', text);
  const each = data.programs[pass.program];
  const touched = [...group.went.map((n) => each.primitives[n]), ...group.came.map((n) => each.ops[n])];
  for (const { module } of touched)
    for (let m = module; m >= 0; m = data.modules[m].parent)
      noteDifference(marks, `module:${m}`, 'changed', `${pass.name} changed something inside`);
  return { marks, program: pass.program, title: `${pass.name}, ${group.module || data.model}` +
    (group.times > 1 ? ` × ${group.times}` : '') };
}

function markOfPass(box) {
  const { marks, program: number } = mapChoice.change;
  if (number !== state.program || mapChoice.level === 'plan') return null;
  const kind = box.module !== undefined ? 'module' : mapChoice.level === 'fused' ? 'op' : 'primitive';
  return marks.get(`${kind}:${box.module !== undefined ? box.module : box.op}`) || null;
}

// Differences are those of the model as it is written, or of its steps: other operations show what they were made of.
function differenceOf(box) {
  if (mapChoice.change) return markOfPass(box);
  if (state.program !== 0 || !differing.size) return null;
  if (box.module !== undefined) return differing.get(`module:${box.module}`) || null;
  if (box.op === undefined) return null;
  if (mapChoice.level === 'plan') return differing.get(`step:${box.op}`) || null;
  if (mapChoice.level === 'primitive') return differing.get(`primitive:${box.op}`) || null;
  const op = program().ops[box.op];
  const found = op.fused_from.map((n) => differing.get(`primitive:${n}`)), known = found.filter(Boolean);
  if (known.length && known.length === found.length) return known[0];
  return known.find(({ kind }) => kind === 'changed') ||
    op.steps.map((n) => differing.get(`step:${n}`)).find(Boolean) || null;
}
