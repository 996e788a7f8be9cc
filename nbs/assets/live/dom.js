// Builds elements. Text is always set as text: no page makes markup from data.

export function h(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) {
    if (v === null || v === undefined || v === false) continue;
    if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else if (k in e && typeof v !== 'string') e[k] = v;
    else e.setAttribute(k, v === true ? '' : v);
  }
  e.append(...children.flat(Infinity).filter(c => c !== null && c !== undefined && c !== false));
  return e;
}

// Characters that override, embed or isolate a direction
const CONTROLS = {'\u202A': 'LRE', '\u202B': 'RLE', '\u202C': 'PDF', '\u202D': 'LRO', '\u202E': 'RLO', '\u2066': 'LRI', '\u2067': 'RLI', '\u2068': 'FSI', '\u2069': 'PDI'};
const CONTROL = /([\u202A-\u202E\u2066-\u2069])/;

// A text's parts, with such characters named where they stand
export function parts(text) {
  return String(text).split(CONTROL).filter(p => p !== '').map(p => CONTROLS[p]
    ? h('span', {class: 'control', title: `U+${p.codePointAt(0).toString(16).toUpperCase()}`}, CONTROLS[p]) : p);
}
// A name inside a line: its direction stays its own
export function name(text) { return h('bdi', {}, parts(text)); }
export function plain(text) { return String(text).split(CONTROL).map(p => CONTROLS[p] ? `⟨${CONTROLS[p]}⟩` : p).join(''); }

export function option(value, text, chosen) { return h('option', {value, selected: value === chosen}, plain(text)); }
export function chooser(label, value, options, change, more = {}) {
  return h('label', {class: 'field'}, h('span', {}, label), h('select', {class: 'form-select form-select-sm', onchange: e => change(e.target.value), ...more}, options));
}
// A row of buttons of which one is pressed; a list where they are many
export function choice(label, entries, current, change) {
  if (entries.length > 8) return h('div', {class: 'fields'}, chooser(label, current, entries.map(([value, text, note]) => option(value, note ? `${text} (${note})` : text, current)), change));
  return h('div', {class: 'choice', role: 'group', 'aria-label': label}, entries.map(([value, text, note]) =>
    h('button', {type: 'button', 'data-value': value, 'aria-pressed': String(value === current), onclick: () => change(value)}, plain(text), note ? h('small', {}, ` ${note}`) : null)));
}
export function failed(where, error) { where.replaceChildren(h('p', {role: 'alert'}, `This page could not read its data: ${error.message}`)); }
