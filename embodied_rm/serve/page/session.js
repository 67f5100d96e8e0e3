// Session API: requests are JSON followed by images, responses JSON followed by little-endian arrays.

const HEADER_LENGTH = "Inference-Header-Content-Length";
const RETRY_MS = 60_000;  // time for retries; the service recognizes them and scores each frame once
const RETRY_DELAY = 1;    // s, if the service does not name one
const UNKNOWN = -1;       // replaces a value that the model does not predict
const DATATYPE_BYTES = { FP32: 4, INT64: 8, INT32: 4, UINT8: 1, BOOL: 1 };
const READERS = {
  FP32: (view, offset) => view.getFloat32(offset, true),
  INT64: (view, offset) => Number(view.getBigInt64(offset, true)),
  INT32: (view, offset) => view.getInt32(offset, true),
  UINT8: (view, offset) => view.getUint8(offset),
  BOOL: (view, offset) => view.getUint8(offset) !== 0,
};

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const knownValue = (value) => (value === UNKNOWN ? null : value);

export async function fetchMetadata() {
  const response = await fetchService("v1/metadata", {}), body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return body;
}

async function fetchService(path, options) {
  try { return await fetch(path, options); }
  catch (error) {
    if (error.name === "AbortError") throw error;
    throw Object.assign(new Error("the service does not respond: is embodied-rm serve still running?"), { unreachable: true });
  }
}

export function decodeResponse(buffer, length) {
  const metadata = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 0, length)));
  const columns = {};
  let offset = length;
  for (const { name, datatype, parameters } of metadata.outputs) {
    const view = new DataView(buffer, offset, parameters.binary_data_size), size = DATATYPE_BYTES[datatype];
    columns[name] = Array.from({ length: view.byteLength / size }, (_, i) => READERS[datatype](view, i * size));
    offset += view.byteLength;
  }
  return { metadata, columns };
}

// Send a request and retry while the service is full, starting or unreachable. `onRetry` gets the reason.
export async function post(path, header, images, signal, onRetry = () => {}) {
  const json = new TextEncoder().encode(JSON.stringify(header));
  const headers = { "Content-Type": "application/octet-stream", [HEADER_LENGTH]: json.length };
  const request = { method: "POST", headers, body: new Blob([json, ...images]), signal };
  const deadline = performance.now() + RETRY_MS;
  for (;;) {
    let delay = RETRY_DELAY, failure;
    try {
      const response = await fetchService(path, request);
      if (response.ok) return decodeResponse(await response.arrayBuffer(), +response.headers.get(HEADER_LENGTH));
      failure = new Error((await response.json()).error);
      if (response.status !== 429 && response.status !== 503) throw failure;
      delay = +response.headers.get("Retry-After") || RETRY_DELAY;
    } catch (error) {
      if (!error.unreachable) throw error;
      failure = error;
    }
    if (performance.now() + 1000 * delay > deadline) throw failure;
    onRetry(`${failure.message}; retrying in ${delay} s`);
    await sleep(1000 * delay);
    signal?.throwIfAborted();
  }
}
