// Elements of a page: those that are there by their id, and new ones.
export const $ = (id) => document.getElementById(id);
export const add = (parent, tag, className = "", text = "") => {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return parent.appendChild(element);
};
