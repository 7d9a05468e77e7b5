// MODEL, above, is what tfmc knows of the model: names, types, places in the args struct, files.

export class TfmError extends Error {
  constructor(message, status, reason = 0, place = null) {
    super(place ? `${place}: ${message}` : message);
    this.name = 'TfmError';
    Object.assign(this, { status, reason, place });
  }
}

const [INPUT, USAGE, ENVIRONMENT, NO_MEMORY, INTERNAL] = [1, 2, 3, 4, 70];
const ERROR = { message: 4, reason: 516, place: 520, bytes: 524 }; // tfm_error, where pointers have 4 bytes
const RESULT = { n: 0, width: 8, sequences: 16, lengths: 20, scores: 24, token_scores: 40, bytes: 48 }; // tfm_generated
const MOST_DIMS = 8;
const TYPES = { f32: Float32Array, i32: Int32Array, bool: Uint8Array };

function refuse(message, status = USAGE) {
  throw new TfmError(message, status);
}

// ---- the module ----

// One function with relaxed_madd: an engine that takes it takes the whole module.
const RELAXED = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 8, 1, 96, 3, 123, 123, 123, 1, 123, 3, 2, 1, 0, 10, 13, 1, 11, 0, 32, 0, 32, 1, 32, 2, 253, 133,
  2, 11]);

export function takesRelaxed() {
  return MODEL.relaxed !== null && WebAssembly.validate(RELAXED);
}

async function response(url, signal) {
  if (url.protocol !== 'file:') {
    const got = await fetch(url, { signal });
    if (!got.ok) refuse(`${url}: ${got.status} ${got.statusText}`, ENVIRONMENT);
    return got;
  }
  const { readFile } = await import('node:fs/promises');
  return new Response(await readFile(url, { signal }));
}

async function compiled(module, relaxed, signal) {
  if (module instanceof WebAssembly.Module) return module;
  if (module instanceof ArrayBuffer || ArrayBuffer.isView(module)) return WebAssembly.compile(module);
  const name = relaxed && takesRelaxed() ? MODEL.relaxed : MODEL.plain ?? MODEL.relaxed;
  const got = await response(new URL(module ?? name, import.meta.url), signal);
  return WebAssembly.compile(await got.arrayBuffer());
}

// ---- memory of the module ----

class Memory {
  constructor(exports) {
    this.exports = exports;
    this.call = (name, ...rest) => exports[`${MODEL.prefix}_${name}`](...rest);
    this.error = this.take(ERROR.bytes);
  }

  get view() {
    return new DataView(this.exports.memory.buffer);
  }

  get bytes() {
    return new Uint8Array(this.exports.memory.buffer);
  }

  take(bytes) {
    const at = this.call('allocate', BigInt(bytes)) >>> 0;
    if (!at) throw new TfmError(`no memory for ${bytes} bytes: a module has at most 4 GB`, NO_MEMORY);
    return at;
  }

  text(at, most = Infinity) {
    const bytes = this.bytes;
    let end = at;
    while (bytes[end] && end - at < most) end++;
    return new TextDecoder().decode(bytes.slice(at, end));
  }

  // Runs a function whose last argument is the error; throws what it says.
  run(name, ...rest) {
    let status;
    try {
      status = this.call(name, ...rest, this.error);
    } catch (trap) {
      throw new TfmError(`the module trapped: ${trap.message}`, INTERNAL);
    }
    if (!status) return;
    const view = this.view, place = view.getUint32(this.error + ERROR.place, true);
    const reason = view.getUint32(this.error + ERROR.reason, true);
    throw new TfmError(this.text(this.error + ERROR.message, 512), status, reason, place ? this.text(place) : null);
  }
}

// ---- weights ----

// Bytes go to their place as they arrive.
async function read(memory, from, signal, progress) {
  const total = MODEL.file_bytes, at = memory.take(total);
  let done = 0;
  const add = chunk => {
    if (done + chunk.byteLength > total) refuse('the weights are longer than this model\'s', ENVIRONMENT);
    memory.bytes.set(chunk, at + done);
    done += chunk.byteLength;
    progress?.(done, total);
  };
  try {
    if (from instanceof ArrayBuffer) add(new Uint8Array(from));
    else if (ArrayBuffer.isView(from)) add(new Uint8Array(from.buffer, from.byteOffset, from.byteLength));
    else {
      const isReady = from instanceof ReadableStream || from instanceof Response;
      const got = isReady ? from : await response(new URL(from, import.meta.url), signal);
      const reader = (got instanceof Response ? got.body : got).getReader();
      for (let next; !(next = await reader.read()).done;) {
        signal?.throwIfAborted();
        add(next.value);
      }
    }
    if (done < total) refuse(`the weights are ${done} bytes, not ${total}`, ENVIRONMENT);
  } catch (error) {
    memory.call('release', at);
    throw error;
  }
  return at;
}

// ---- tensors ----

function whole(name, value, fits = n => BigInt.asIntN(64, n) === n) {
  if (typeof value !== 'bigint' && !Number.isSafeInteger(value)) refuse(`"${name}" is a whole number, not ${value}`, INPUT);
  if (!fits(BigInt(value))) refuse(`"${name}" is ${value}, which is out of range`, INPUT);
  return BigInt(value);
}

// true and false, or 1 and 0 as in a generate block.
function flag(name, value) {
  if (value !== true && value !== false && value !== 1 && value !== 0) refuse(`"${name}" is true or false, not ${value}`, INPUT);
  return Number(value);
}

const dtype = type => type.split('[')[0];
const declared = type => (type.includes('[') ? type.slice(type.indexOf('[') + 1, -1).split(',').map(dim => dim.trim()) : []);
const product = dims => dims.reduce((a, b) => a * b, 1);

function flatten(name, value, dims, depth, out) {
  if (!Array.isArray(value)) {
    if (depth !== dims.length) refuse(`input "${name}": lists of different depth`, INPUT);
    out.push(Number(value));
    return;
  }
  if (depth === dims.length) refuse(`input "${name}": lists of different depth`, INPUT);
  if (value.length !== dims[depth]) refuse(`input "${name}": lists of different length`, INPUT);
  for (const item of value) flatten(name, item, dims, depth + 1, out);
}

// A tensor is {data, dims}, or lists in lists. Out: {data: a typed array of the input's type, dims}.
function tensor(info, value) {
  const Type = TYPES[dtype(info.type)];
  if (Array.isArray(value) || typeof value === 'number' || typeof value === 'boolean') {
    const dims = [], numbers = [];
    for (let at = value; Array.isArray(at); at = at[0]) dims.push(at.length);
    flatten(info.name, value, dims, 0, numbers);
    return { data: Type.from(numbers), dims };
  }
  const { data, dims } = value ?? {};
  if (!(data instanceof Type)) refuse(`input "${info.name}" is ${info.type}: data must be a ${Type.name}`, INPUT);
  if (!Array.isArray(dims) || !dims.every(n => Number.isSafeInteger(n) && n >= 0))
    refuse(`input "${info.name}": dims must be a list of numbers`, INPUT);
  if (product(dims) !== data.length)
    refuse(`input "${info.name}" has ${data.length} numbers, and its dims say ${product(dims)}`, INPUT);
  return { data, dims };
}

// ---- a model ----

class Model {
  #memory; #handles; #context; #weights; #open = true; #broken = false;

  constructor(memory, weights, handles, context) {
    this.#memory = memory;
    this.#weights = weights;
    this.#handles = handles;
    this.#context = context;
    this.fused = memory.call('fused') === 1;
    this.threads = 1;
    this.description = MODEL;
  }

  // Calls f with a function that gives memory, which is released behind it.
  #with(f) {
    if (!this.#open) refuse('the model is closed');
    if (this.#broken) refuse('the module trapped before: open the model again', INTERNAL);
    const memory = this.#memory, taken = [];
    const take = bytes => (taken.push(memory.take(Math.max(bytes, 8))), taken.at(-1));
    try {
      return f(memory, take);
    } catch (error) {
      this.#broken ||= error instanceof TfmError && error.status === INTERNAL;
      throw error;
    } finally {
      if (!this.#broken) for (const at of taken) memory.call('release', at);
    }
  }

  #sizes(given, chosen, optional) {
    const sizes = {};
    for (const info of MODEL.inputs) {
      const value = given[info.name];
      if (!value) continue;
      const dims = declared(info.type);
      if (dims.length !== value.dims.length)
        refuse(`input "${info.name}" is ${info.type}, not of ${value.dims.length} axes`, INPUT);
      dims.forEach((dim, axis) => {
        if (MODEL.sizes.some(size => size.name === dim)) sizes[dim] ??= value.dims[axis];
      });
    }
    for (const [name, n] of Object.entries(chosen ?? {})) {
      if (!MODEL.sizes.some(size => size.name === name)) refuse(`the model has no size "${name}"`);
      sizes[name] = whole(name, n);
    }
    for (const size of MODEL.sizes)
      if (sizes[size.name] === undefined && !optional) refuse(`no input says how large "${size.name}" is: give sizes`);
    return sizes;
  }

  #write(memory, args, offset, value) {
    memory.view.setBigInt64(args + offset, BigInt(value), true);
  }

  // The args struct with sizes and inputs; `optional`: an input that may be missing.
  #args(memory, take, inputs, chosen, optional) {
    const given = {};
    for (const name of Object.keys(inputs))
      if (!MODEL.inputs.some(info => info.name === name)) refuse(`the model has no input "${name}"`);
    for (const info of MODEL.inputs)
      if (inputs[info.name] !== undefined) given[info.name] = tensor(info, inputs[info.name]);
    const sizes = this.#sizes(given, chosen, optional), args = take(MODEL.args_bytes);
    memory.bytes.fill(0, args, args + MODEL.args_bytes);
    this.#write(memory, args, 0, MODEL.args_bytes);
    for (const size of MODEL.sizes) this.#write(memory, args, size.offset, sizes[size.name] ?? 0);
    for (const info of MODEL.inputs) {
      const value = given[info.name];
      if (!value) continue;
      const at = take(value.data.byteLength);
      memory.bytes.set(new Uint8Array(value.data.buffer, value.data.byteOffset, value.data.byteLength), at);
      this.#write(memory, args, info.offset, at);
    }
    return { args, given };
  }

  #dims(memory, isOutput, index, type) {
    const at = memory.call('dims', this.#context, isOutput) + index * MOST_DIMS * 8;
    return declared(type).map((_, axis) => Number(memory.view.getBigInt64(at + axis * 8, true)));
  }

  // The sizes are bound: every axis of every input must be what they make of it.
  #check(memory, given) {
    MODEL.inputs.forEach((info, i) => {
      const value = given[info.name];
      if (!value) return;
      const dims = this.#dims(memory, 0, i, info.type);
      if (dims.some((n, axis) => n !== value.dims[axis]))
        refuse(`input "${info.name}" is ${info.type}, here [${dims}], not [${value.dims}]`, INPUT);
    });
  }

  workspaceBytes(sizes) {
    return this.#with((memory, take) => {
      const { args } = this.#args(memory, take, {}, sizes, false);
      return Number(memory.call('workspace_bytes', this.#handles.model, args));
    });
  }

  run(inputs, { outputs, sizes } = {}) {
    for (const name of outputs ?? [])
      if (!MODEL.outputs.some(info => info.name === name)) refuse(`the model has no output "${name}"`);
    return this.#with((memory, take) => {
      const { args, given } = this.#args(memory, take, inputs, sizes, false);
      memory.run('reserve', this.#context, args);
      this.#check(memory, given);
      const wanted = MODEL.outputs.map((info, i) => ({ ...info, dims: this.#dims(memory, 1, i, info.type) }))
        .filter(info => !outputs || outputs.includes(info.name));
      for (const info of wanted) {
        info.n = product(info.dims);
        info.at = take(info.n * TYPES[dtype(info.type)].BYTES_PER_ELEMENT);
        this.#write(memory, args, info.offset, info.at);
        this.#write(memory, args, info.capacity, info.n);
      }
      memory.run('forward', this.#context, args);
      return Object.fromEntries(wanted.map(info => {
        const Type = TYPES[dtype(info.type)];
        return [info.name, { data: new Type(memory.exports.memory.buffer, info.at, info.n).slice(), dims: info.dims }];
      }));
    });
  }

  // Continues prompts. `options` by the names of a generation_config.json; lengths: tokens of each prompt.
  generate(inputs, { lengths, sizes, ...options } = {}) {
    const about = MODEL.generate;
    if (!about) refuse('the model has no generate block');
    return this.#with((memory, take) => {
      const { args, given } = this.#args(memory, take, inputs, sizes, true);
      const chosen = this.#options(memory, take, about, options);
      const rows = lengths && take(lengths.length * 8), result = take(RESULT.bytes);
      if (lengths && given[about.input] && lengths.length !== (given[about.input].dims[0] ?? 1))
        refuse(`lengths are of ${lengths.length} prompts, and there are ${given[about.input].dims[0]}`, INPUT);
      lengths?.forEach((n, i) => memory.view.setBigInt64(rows + 8 * i, whole('lengths', n), true));
      memory.bytes.fill(0, result, result + RESULT.bytes);
      memory.run('generate', this.#context, args, rows ?? 0, chosen, result);
      try {
        return this.#generated(memory, result);
      } finally {
        memory.call('generated_free', result);
      }
    });
  }

  #options(memory, take, about, options) {
    const at = take(about.bytes), view = () => memory.view;
    memory.bytes.fill(0, at, at + about.bytes);
    view().setUint32(at, about.bytes, true);
    memory.call('generate_defaults', at);
    // A limit replaces both of the block. One of -1 says in C that none is given; here it was.
    const limits = Object.entries(about.options).filter(([, [kind]]) => kind === 'limit');
    const given = limits.filter(([name]) => options[name] != null);
    for (const [name] of given) if (whole(name, options[name]) === -1n) refuse(`${name} must be 1 or more`, INPUT);
    if (given.length) for (const [, [, offset]] of limits) view().setBigInt64(at + offset, -1n, true);
    for (const [name, value] of Object.entries(options)) {
      const option = about.options[name];
      if (!option) refuse(`generation has no option "${name}"`);
      if (value == null) continue; // not given, as in a config
      const [kind, offset] = option, place = at + offset;
      if (kind === 'real') {
        if (typeof value !== 'number') refuse(`"${name}" is a number, not ${value}`, INPUT);
        view().setFloat64(place, value, true);
      } else if (kind === 'flag') view().setInt32(place, flag(name, value), true);
      else if (kind === 'early') view().setInt32(place, value === 'never' ? 2 : flag(name, value), true);
      else if (kind === 'seed') view().setBigInt64(place, whole(name, value, n => BigInt.asUintN(64, n) === n), true);
      else if (kind === 'tokens') {
        const list = [value].flat(), tokens = take(list.length * 8);
        list.forEach((token, i) => view().setBigInt64(tokens + 8 * i, whole(name, token), true));
        view().setUint32(place, tokens, true);
        view().setBigUint64(place + 8, BigInt(list.length), true);
      } else view().setBigInt64(place, whole(name, value), true);
    }
    return at;
  }

  // Rows without their padding.
  #generated(memory, at) {
    const view = memory.view, buffer = memory.exports.memory.buffer;
    const number = offset => Number(view.getBigInt64(at + offset, true));
    const pointer = offset => view.getUint32(at + offset, true);
    const n = number(RESULT.n), width = number(RESULT.width);
    const lengths = Array.from(new BigInt64Array(buffer, pointer(RESULT.lengths), n), Number);
    const rows = (offset, Type) =>
      lengths.map((length, i) => new Type(buffer, pointer(offset) + 4 * i * width, length).slice());
    const scores = pointer(RESULT.scores);
    return {
      sequences: rows(RESULT.sequences, Int32Array),
      scores: scores ? new Float32Array(buffer, scores, n).slice() : null,
      token_scores: pointer(RESULT.token_scores) ? rows(RESULT.token_scores, Float32Array) : null,
    };
  }

  get memoryBytes() {
    return this.#memory.exports.memory.buffer.byteLength;
  }

  close() {
    if (!this.#open) return;
    this.#open = false;
    if (!this.#broken) {
      this.#memory.call('context_free', this.#context);
      this.#memory.call('close', this.#handles.model);
      this.#memory.call('release', this.#weights);
    }
    this.#memory = null; // the engine frees the memory with the last reference
  }
}

// Opens the model. weights: a URL, bytes, a Response or a stream of the .tfmw file (the file beside this one); module: a
// URL, bytes or a WebAssembly.Module; relaxed: take the module with relaxed SIMD where the engine does.
export async function open({ weights, module, relaxed = false, signal, progress } = {}) {
  const { exports } = await WebAssembly.instantiate(await compiled(module, relaxed, signal), {});
  if (!exports[`${MODEL.prefix}_fused`]) refuse('the module is of another model', ENVIRONMENT);
  const memory = new Memory(exports), out = memory.take(8);
  let at = 0;
  if (MODEL.embedded) {
    if (weights !== undefined) refuse('the module holds its weights');
    memory.run('open', 0, out);
  } else {
    at = await read(memory, weights ?? MODEL.weights, signal, progress);
    memory.run('open_memory_as', BigInt(MODEL.layout), at, BigInt(MODEL.file_bytes), out);
  }
  const model = memory.view.getUint32(out, true);
  memory.run('context_new', model, 0, out);
  return new Model(memory, at, { model }, memory.view.getUint32(out, true));
}
