// Requests to the server of a local page, and the message line of the page.

import { $, add } from "./elements.js";

export async function request(path, options = {}) {
  let response;
  try { response = await fetch(path, options); }
  catch { throw new Error("the server does not answer: is the command still running?"); }
  const body = await response.json();
  if (response.ok) return { ...body, version: response.headers.get("ETag") };
  throw Object.assign(new Error(body.error), { status: response.status });
}

export function showMessage(text, actionLabel, action) {
  $("message").hidden = !text;
  $("message").textContent = text;
  if (actionLabel) add($("message"), "button", "", actionLabel).onclick = action;
}

// Run a task; if the server refuses it, display its error message.
export const attempt = async (task) => { try { return await task(); } catch (error) { showMessage(error.message); } };
