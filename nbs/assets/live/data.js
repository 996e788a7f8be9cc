// Reads the JSON files that polyroute.site writes, and keeps the state of a page in its address.

const cache = new Map();

// A file below live/, next to the page
export function read(path) {
  if (!cache.has(path)) cache.set(path, fetch(new URL(`../../live/${path}`, import.meta.url)).then(r => {
    if (!r.ok) throw new Error(`${path}: ${r.status} ${r.statusText}`);
    return r.json();
  }).catch(e => { cache.delete(path); throw e; }));
  return cache.get(path);
}
export const readBoard = (suite, name) => read(`${encodeURIComponent(suite)}/${encodeURIComponent(name)}.json`);
export const readItems = (suite, name) => read(`${encodeURIComponent(suite)}/${encodeURIComponent(name)}.items.json`);

const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
export const unpack8 = bytes;
export function unpackBits(text, n) { const b = bytes(text); return Uint8Array.from({length: n}, (_, i) => (b[i >> 3] >> (7 - (i & 7))) & 1); }
export function unpack16(text) { const b = bytes(text); return Uint16Array.from({length: b.length >> 1}, (_, i) => b[2*i] + 256*b[2*i + 1]); }
export const NONE = 255;   // an item without a value

// The page's state, from its address and back; what is at its default is left out
export function readState(defaults) {
  const q = new URLSearchParams(location.search);
  return Object.fromEntries(Object.entries(defaults).map(([k, v]) => [k, q.has(k) ? q.get(k) : v]));
}
export function writeState(state, defaults) {
  const q = new URLSearchParams(Object.entries(state).filter(([k, v]) => v !== defaults[k] && v !== '' && v !== null && v !== undefined));
  history.replaceState(null, '', q.size ? `?${q}` : location.pathname);
}
export function pageAddress(page, state) { return `${page}?${new URLSearchParams(Object.entries(state).filter(([, v]) => v))}`; }
