// The session API: requests are JSON with images behind it, answers JSON with little-endian arrays behind it.

const LENGTH = "Inference-Header-Content-Length";
const PATIENCE = 60_000;  // ms for which a request is sent again: the service knows it by what it shows, and judges it once
const PAUSE = 1;          // s before that, where the service does not say
const UNKNOWN = -1;       // in the place of a number that the model does not tell
const BYTES = { FP32: 4, INT64: 8, INT32: 4, UINT8: 1, BOOL: 1 };
const READ = {
  FP32: (view, at) => view.getFloat32(at, true),
  INT64: (view, at) => Number(view.getBigInt64(at, true)),
  INT32: (view, at) => view.getInt32(at, true),
  UINT8: (view, at) => view.getUint8(at),
  BOOL: (view, at) => view.getUint8(at) !== 0,
};

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const known = (value) => (value === UNKNOWN ? null : value);

export async function about() {
  const response = await reached("v1/metadata", {});
  return refuse(response, await response.json());
}

const refuse = (response, told) => {
  if (response.ok) return told;
  throw new Error(told.error);
};

async function reached(path, options) {
  try { return await fetch(path, options); }
  catch (fault) {
    if (fault.name === "AbortError") throw fault;
    throw Object.assign(new Error("the service does not answer: is embodied-rm serve still running?"), { lost: true });
  }
}

export function readAnswer(buffer, length) {
  const told = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 0, length)));
  const columns = {};
  let at = length;
  for (const { name, datatype, parameters } of told.outputs) {
    const view = new DataView(buffer, at, parameters.binary_data_size), size = BYTES[datatype];
    columns[name] = Array.from({ length: view.byteLength / size }, (_, i) => READ[datatype](view, i * size));
    at += view.byteLength;
  }
  return { told, columns };
}

// Asks until there is an answer: a service that is full or starting says when to come again. `waiting` is told why.
export async function post(path, header, images, signal, waiting = () => {}) {
  const json = new TextEncoder().encode(JSON.stringify(header));
  const headers = { "Content-Type": "application/octet-stream", [LENGTH]: json.length };
  const request = { method: "POST", headers, body: new Blob([json, ...images]), signal };
  const until = performance.now() + PATIENCE;
  for (;;) {
    let pause = PAUSE, fault;
    try {
      const response = await reached(path, request);
      if (response.ok) return readAnswer(await response.arrayBuffer(), +response.headers.get(LENGTH));
      fault = new Error((await response.json()).error);
      if (response.status !== 429 && response.status !== 503) throw fault;
      pause = +response.headers.get("Retry-After") || PAUSE;
    } catch (error) {
      if (!error.lost) throw error;
      fault = error;
    }
    if (performance.now() + 1000 * pause > until) throw fault;
    waiting(`${fault.message}; again in ${pause} s`);
    await sleep(1000 * pause);
    signal?.throwIfAborted();
  }
}
