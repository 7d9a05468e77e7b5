// The data of the page, elements, formulas and numbers as people read them.

const data = JSON.parse(document.getElementById('tfm-data').textContent);
const SVG = 'http://www.w3.org/2000/svg';

// Texts go in as text nodes and attributes by name: nothing of a model is ever read as HTML.
function fill(node, attributes, children) {
  for (const [name, value] of attributes) if (value !== null && value !== undefined) node.setAttribute(name, value);
  for (const child of children) node.append(child);
  return node;
}
function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), Object.entries(attributes || {}), children);
}
function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), Object.entries(attributes || {}), children);
}
function clear(node) {
  while (node.firstChild) node.firstChild.remove();
  return node;
}

// ---- formulas ----

// A formula becomes a function of the sizes, by name; `//` is division rounded down.
function compileFormula(text) {
  let at = 0;
  const skip = () => { while (text[at] === ' ') at++; };
  function atom() {
    skip();
    if (text[at] === '(') {
      at++;
      const inner = sum();
      skip();
      at++;
      return inner;
    }
    if (text[at] === '-') {
      at++;
      const inner = atom();
      return (sizes) => -inner(sizes);
    }
    const rest = text.slice(at);
    const number = /^\d+(\.\d+)?(e[+-]?\d+)?/.exec(rest);
    if (number) {
      at += number[0].length;
      const value = Number(number[0]);
      return () => value;
    }
    const name = /^[^\s()*+/-]+/.exec(rest);
    at += name ? name[0].length : 1;
    return (sizes) => (name && sizes.get(name[0])) || 0;
  }
  function product() {
    let left = atom();
    for (;;) {
      skip();
      const divides = text.startsWith('//', at);
      if (!divides && text[at] !== '*') return left;
      at += divides ? 2 : 1;
      const a = left, b = atom();
      left = divides ? (sizes) => Math.floor(a(sizes) / b(sizes)) : (sizes) => a(sizes) * b(sizes);
    }
  }
  function sum() {
    let left = product();
    for (;;) {
      skip();
      const sign = text[at];
      if (sign !== '+' && sign !== '-') return left;
      at++;
      const a = left, b = product();
      left = sign === '+' ? (sizes) => a(sizes) + b(sizes) : (sizes) => a(sizes) - b(sizes);
    }
  }
  return sum();
}

const formulas = data.formulas.map(() => null);
function formula(number) {
  return formulas[number] || (formulas[number] = compileFormula(data.formulas[number]));
}

// ---- numbers ----

function scaled(value, units, step) {
  let unit = 0;
  while (Math.abs(value) >= step && unit + 1 < units.length) {
    value /= step;
    unit++;
  }
  const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toFixed(digits) + (units[unit] ? ' ' + units[unit] : '');
}
const showFlop = (value) => scaled(value, ['FLOP', 'kFLOP', 'MFLOP', 'GFLOP', 'TFLOP', 'PFLOP'], 1000);
const showBytes = (value) => scaled(value, ['B', 'kB', 'MB', 'GB', 'TB', 'PB'], 1000);
function showSeconds(value) {
  return value >= 1 ? scaled(value, ['s'], 1e9) : scaled(value * 1e9, ['ns', 'µs', 'ms'], 1000);
}
const showShare = (value) => (100 * value).toFixed(value >= 0.0995 ? 0 : 1) + ' %';

// ---- names of things ----

const modulePath = (number) => data.modules[number].path || data.model;
const fileName = (number) => data.files[number].name;
// The place in the user's own text, past the calls within standard layers.
const isStandard = (place) => fileName(place[0]).startsWith('<');
const ownPlace = (lines) => lines.find((place) => !isStandard(place)) || lines[0];
const lineThing = ([file, line]) => `line:${file}:${line}`;
