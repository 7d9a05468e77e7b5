// Kernels: what each computes, its LLVM IR and its assembly, side by side for two instruction sets.

const blockTexts = new Map();

// Texts are unpacked when they are first shown.
function blockText(number) {
  if (!blockTexts.has(number)) {
    const binary = atob(data.blocks[number]), bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
    blockTexts.set(number, new Response(stream).text());
  }
  return blockTexts.get(number);
}

function countsText(code) {
  const inner = code.loops.filter((loop) => loop.inner);
  const most = inner.reduce((best, loop) => (!best || loop.fma > best.fma ? loop : best), null);
  if (!most) return 'no loop';
  const parts = [[most.fma, 'multiply-add'], [most.loads, 'load'], [most.stores, 'store'],
                 [most.broadcasts, 'broadcast'], [most.prefetches, 'prefetch']]
    .filter(([n]) => n).map(([n, what]) => `${n} ${what}${n > 1 ? (what.endsWith('h') ? 'es' : 's') : ''}`);
  const spills = most.spills ? `${most.spills} spills` : 'no spill';
  return `inner loop, line ${most.line}: ${parts.join(', ') || 'nothing counted'}; ${spills} in it, ` +
    `${code.spills} in the whole`;
}

// Lines from the header of a loop to its end: the last jump back to the label before the header's comment.
function innerRanges(lines, code) {
  const ranges = [];
  for (const loop of code.loops.filter((each) => each.inner)) {
    let label = null;
    for (let i = loop.line - 1; i >= 0 && !label; i--) label = /^\.L(BB\d+_\d+):/.exec(lines[i]);
    if (!label) continue;
    let last = loop.line;
    lines.forEach((line, i) => { if (i + 1 > last && new RegExp(`\\.L${label[1]}$`).test(line)) last = i + 1; });
    ranges.push([loop.line, last]);
    lines.forEach((line, i) => { // blocks of the loop that stand before its header
      if (i + 1 >= loop.line || !line.includes(`in Loop: Header=${label[1]} `)) return;
      let end = i;
      while (end + 1 < lines.length && !/^(\.LBB|# %bb)/.test(lines[end + 1])) end++;
      ranges.push([i + 1, end + 1]);
    });
  }
  return ranges;
}

function codeLines(text, code, isAssembly) {
  const lines = text.split('\n'), ranges = isAssembly ? innerRanges(lines, code) : [];
  return el('pre', { class: 'asm', tabindex: '0' }, ...lines.map((line, i) => {
    const inner = ranges.some(([from, to]) => i + 1 >= from && i + 1 <= to), spill = /\b(Spill|Reload)\b/.test(line);
    return el('span', { class: `row${inner ? ' inner' : ''}${spill ? ' spill' : ''}` }, line + '\n');
  }));
}

function codePane(title, number, code, isAssembly) {
  const pane = el('div', { class: 'pane' }, el('h3', {}, title), el('p', { class: 'quiet' }, 'unpacking'));
  blockText(number).then((text) => {
    pane.lastChild.remove();
    pane.append(codeLines(text, code, isAssembly));
    const first = pane.querySelector('.inner');
    if (first) first.parentElement.scrollTop = first.offsetTop - first.parentElement.offsetTop - 40;
  }, () => { pane.lastChild.textContent = 'this browser cannot unpack the text'; });
  return pane;
}

const codeChoice = { kernel: dearestKernel(), what: 'asm' };

// Until something is selected: the first kernel of the step that is expected to take longest.
function dearestKernel() {
  let found = 0, most = -1;
  for (const step of data.programs[0].steps) {
    const time = step.prepare ? 0 : formula(step.time_ns)(state.values);
    if (!step.kernels.length || time <= most) continue;
    most = time;
    found = step.kernels[0];
  }
  return found;
}

function showKernel(place) {
  const kernel = data.kernels[codeChoice.kernel];
  clear(place);
  if (!kernel) return;
  const choice = el('select', { 'aria-label': 'what is shown' }, el('option', { value: 'asm' }, 'assembly'),
    el('option', { value: 'llvm' }, 'LLVM IR'), el('option', { value: 'both' }, 'LLVM IR and assembly'));
  choice.value = codeChoice.what;
  choice.addEventListener('change', () => {
    codeChoice.what = choice.value;
    showKernel(place);
  });
  const panes = el('div', { class: 'panes' });
  for (const [isa, code] of Object.entries(kernel.code)) {
    if (codeChoice.what !== 'asm') panes.append(codePane(`LLVM IR, ${isa}`, code.llvm, code, false));
    if (codeChoice.what !== 'llvm') panes.append(codePane(`assembly, ${isa}`, code.asm, code, true));
  }
  const counts = Object.entries(kernel.code).map(([isa, code]) =>
    el('li', {}, el('strong', {}, isa), ': ' + countsText(code)));
  place.append(el('h2', {}, kernel.name), el('p', { class: 'spec' }, specText(kernel.spec)), el('ul', {}, ...counts),
    el('p', {}, el('label', {}, 'show ', choice)), panes);
}

// Specifications have numbers as hexadecimal fractions, which are exact and which nobody reads.
const specText = (text) => text.replace(/0x([0-9a-f])(?:\.([0-9a-f]+))?p([+-]\d+)/g, (all, whole, part, power) =>
  String(parseInt(whole + (part || ''), 16) * 2 ** (Number(power) - 4 * (part || '').length)));

// What it computes, in short: its name is a hash of that. Rows are told from each other by what they do to a number.
function kernelTitle(kernel) {
  const first = specText(kernel.spec.split('\n')[0].trim());
  const row = /^row (\w+)/.exec(first);
  if (!row) return first || kernel.name;
  const does = [...kernel.spec.matchAll(/^ *t\d+ = ([a-z_]\w*)/gm)].map((found) => found[1])
    .filter((name) => !['operand', 'acc', 'inf', 'nan'].includes(name));
  return `row ${row[1]}${does.length ? `: ${does.join(', ')}` : ''}`;
}

function kernelRow(kernel, number) {
  const inLoops = (code) => code.loops.filter((loop) => loop.inner).reduce((sum, loop) => sum + loop.spills, 0);
  const each = Object.values(kernel.code).map((code) => `${inLoops(code)} of ${code.spills}`);
  return el('tr', { 'data-thing': `kernel:${number}`, tabindex: '0', 'aria-selected': 'false' },
    el('td', { class: 'name kernel-name', title: kernel.name }, kernelTitle(kernel)),
    el('td', {}, String(kernel.used_by.length)), el('td', {}, each.join(' / ')));
}

function viewCode(section) {
  if (!data.kernels.length) {
    section.append(el('p', { class: 'quiet' }, 'No kernel is compiled for this model.'));
    return () => {};
  }
  const isas = [...new Set(data.kernels.flatMap((kernel) => Object.keys(kernel.code)))];
  const table = el('table', { class: 'kernels', role: 'grid', 'aria-label': 'kernels' },
    el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'kernel'),
      el('th', { scope: 'col' }, 'steps'),
      el('th', { scope: 'col', title: isas.join(' / ') }, 'spills in inner loops, of all'))),
    el('tbody', {}, ...data.kernels.map(kernelRow)));
  const detail = el('div', { class: 'kernel' });
  section.append(el('div', { class: 'code-view' }, el('div', { class: 'scroll', tabindex: '0', role: 'group',
    'aria-label': 'list of kernels' }, table), detail));
  let shown = -1;
  const follow = () => {
    const [kind, number] = selection.thing ? numbersOf(selection.thing) : [];
    const related = [...selection.related].find((thing) => thing.startsWith('kernel:'));
    if (kind === 'kernel') codeChoice.kernel = number;
    else if (related &&
        !selection.related.has(`kernel:${codeChoice.kernel}`)) codeChoice.kernel = numbersOf(related)[1];
    if (shown !== codeChoice.kernel) showKernel(detail);
    shown = codeChoice.kernel;
  };
  whenSelected(follow);
  return follow;
}
