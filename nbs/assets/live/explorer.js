// The item explorer: the texts behind the numbers.
import {h, name, plain, parts, option, chooser, choice, failed} from './dom.js';
import {read, readBoard, readItems, unpack8, unpack16, NONE, readState, writeState, pageAddress} from './data.js';
import {percent, number} from './stats.js';

const DEFAULTS = {suite: 'polyroute', split: '', system: '', outcome: '', other: '', other_outcome: '', from: '', to: '', wrong: '', text: '', sort: ''};
const STEP = 20;
const PLAIN = ['gold', 'question', 'script_group', 'tier'];   // seen elsewhere, or from the language
const page = document.getElementById('live-explorer');
let index, board, items, state, shown = STEP;

const card = slug => index.systems.find(s => s.slug === slug) || {name: slug, track: ''};
const filterKey = f => `in.${f.key}`;
const chosenOf = f => state[filterKey(f)] || '';
const all = () => ({...DEFAULTS, ...Object.fromEntries((board ? board.filters : []).map(f => [filterKey(f), '']))});
function set(changes) { state = {...state, ...changes}; writeState(state, all()); }

// ---- One item's facts

function prepare() {
  const n = items.ids.length;
  items.goldOf = unpack8(items.gold);
  items.questionOf = items.question === null ? new Uint16Array(n) : unpack16(items.question);
  board.filters.forEach(f => { f.at = unpack8(f.of); });
  items.systems.forEach(s => { s.saidOf = unpack8(s.said); s.confidenceOf = s.confidence === null ? null : Array.from(unpack16(s.confidence), x => x/10000); });
  items.wrongs = Array.from({length: n}, (_, i) => items.systems.filter(s => s.saidOf[i] !== items.goldOf[i]).length);
}
const soft = () => board.kind === 'soft';
const right = (s, i) => s.saidOf[i] === items.goldOf[i];
const questionOf = i => items.questions[items.questionOf[i]];
const optionOf = (i, n) => n === NONE ? '' : questionOf(i).options[n];
const systemOf = slug => items.systems.find(s => s.slug === slug);

// ---- Filtering

const outcomeFits = (s, outcome, i) => !s || !outcome || soft() || right(s, i) === (outcome === 'right');
function limit(text, otherwise) { const x = Number(text); return text === '' || Number.isNaN(x) ? otherwise : x/100; }
export function found() {
  const text = state.text.toLowerCase(), s = systemOf(state.system), o = systemOf(state.other), from = limit(state.from, -1), to = limit(state.to, 2), wrong = Number(state.wrong) || 0;
  const narrow = board.filters.filter(chosenOf).map(f => [f, f.values.map(String).indexOf(chosenOf(f))]);
  const fits = i => narrow.every(([f, v]) => f.at[i] === v)
    && outcomeFits(s, state.outcome, i) && outcomeFits(o, state.other_outcome, i)
    && (!s || (from < 0 && to > 1) || (s.confidenceOf !== null && s.confidenceOf[i] >= from && s.confidenceOf[i] <= to))
    && (soft() || items.wrongs[i] >= wrong)
    && (!text || items.ids[i].toLowerCase().includes(text) || (items.states && items.states[i].toLowerCase().includes(text)));
  const list = items.ids.map((_, i) => i).filter(fits);
  if (state.sort === 'wrong' && !soft()) list.sort((i, j) => items.wrongs[j] - items.wrongs[i] || i - j);
  if ((state.sort === 'sure' || state.sort === 'unsure') && s && s.confidenceOf) list.sort((i, j) => (s.confidenceOf[j] - s.confidenceOf[i])*(state.sort === 'sure' ? 1 : -1) || i - j);
  return list;
}

// ---- Drawing

function controls() {
  const suite = index.suites.find(s => s.name === state.suite), change = key => v => { set({[key]: v}); drawList(); };
  const systems = (chosen, none) => [option('', none, chosen), ...items.systems.map(s => option(s.slug, card(s.slug).name, chosen))];
  const outcomes = chosen => [['', 'right or wrong'], ['right', 'right'], ['wrong', 'wrong']].map(([v, t]) => option(v, t, chosen));
  const share = (key, label) => h('label', {class: 'field short'}, h('span', {}, label), h('input', {type: 'number', min: '0', max: '100', step: '1', class: 'form-control form-control-sm', id: key, value: state[key], oninput: e => change(key)(e.target.value)}));
  return h('div', {class: 'controls'},
    index.suites.length > 1 ? choice('Suite', index.suites.map(s => [s.name, s.title]), state.suite, v => open({suite: v, split: '', system: '', other: ''})) : null,
    choice('Data set', suite.splits.map(s => [s.name, s.title, s.items]), board.name, v => open({split: v})),
    h('details', {class: 'filters', open: matchMedia('(min-width: 577px)').matches}, h('summary', {}, 'Filters'), h('div', {class: 'fields'}, board.filters.map(f => chooser(f.title, chosenOf(f), [option('', 'any', chosenOf(f)), ...f.values.map((v, n) => option(String(v), f.names[n], chosenOf(f)))], change(filterKey(f)), {id: filterKey(f)})),
      h('label', {class: 'field'}, h('span', {}, 'Text or id'), h('input', {type: 'search', dir: 'auto', class: 'form-control form-control-sm', id: 'text', value: state.text, oninput: e => change('text')(e.target.value)}))),
    h('div', {class: 'fields'}, chooser('System', state.system, systems(state.system, 'any'), change('system'), {id: 'system'}),
      soft() ? null : chooser('Its answer', state.outcome, outcomes(state.outcome), change('outcome'), {id: 'outcome'}),
      share('from', 'Its confidence, from %'), share('to', 'to %'),
      soft() ? null : [chooser('Second system', state.other, systems(state.other, 'any'), change('other'), {id: 'other'}), chooser('Answer of the second', state.other_outcome, outcomes(state.other_outcome), change('other_outcome'), {id: 'other_outcome'}),
        h('label', {class: 'field short'}, h('span', {}, 'Wrong systems, at least'), h('input', {type: 'number', min: '0', max: String(items.systems.length), class: 'form-control form-control-sm', id: 'wrong', value: state.wrong, oninput: e => change('wrong')(e.target.value)}))],
      chooser('Order', state.sort, [['', 'as in the file'], ...(soft() ? [] : [['wrong', 'most systems wrong first']]), ['sure', 'system most confident first'], ['unsure', 'system least confident first']].map(([v, t]) => option(v, t, state.sort)), change('sort'), {id: 'sort'}),
      h('button', {type: 'button', class: 'plain', id: 'reset', onclick: () => open(Object.fromEntries(Object.keys(all()).filter(k => k !== 'suite' && k !== 'split').map(k => [k, ''])))}, 'Reset'))));
}

function drawList(keep = false) {
  if (!keep) shown = STEP;
  const list = found();
  const one = items.questions.length === 1 ? items.questions[0] : null;
  page.querySelector('#found').textContent = `${list.length} of ${items.ids.length} items.`;
  page.querySelector('#list').replaceChildren(...list.slice(0, shown).map(i => article(i, !one)));
  page.querySelector('#more').replaceChildren(list.length > shown ? h('button', {type: 'button', class: 'plain', onclick: () => { shown += STEP; drawList(true); }}, `Show ${Math.min(STEP, list.length - shown)} more`) : '');
}

function article(i, withQuestion) {
  const q = questionOf(i), s = systemOf(state.system), o = systemOf(state.other), language = items.languages[i];
  const facts = board.filters.filter(f => !PLAIN.includes(f.key) && f.at[i] !== NONE).map(f => h('span', {class: 'fact', title: f.title}, f.key === 'language' || f.key === 'variety' ? '' : `${plain(f.title)}: `, name(f.names[f.at[i]])));
  return h('article', {'data-id': items.ids[i], class: 'item'},
    h('p', {class: 'head'}, h('span', {class: 'gold'}, 'Gold: ', soft() ? goldShares(i) : name(optionOf(i, items.goldOf[i]))), facts, h('code', {}, parts(items.ids[i]))),
    items.states === null ? h('p', {class: 'unpublished'}, 'The text stays with its publisher.') : h('p', {class: 'text', dir: 'auto', lang: /^[a-z]{2,3}$/.test(language) ? language : null}, parts(items.states[i])),
    withQuestion && q.instructions ? h('p', {class: 'asked', dir: 'auto'}, parts(q.instructions)) : null,
    withQuestion && q.options.length ? h('ul', {class: 'options'}, q.options.map((x, n) => h('li', {dir: 'auto'}, parts(x), q.descriptions[n] ? [': ', name(q.descriptions[n])] : null))) : null,
    [s, o].filter(Boolean).map(x => h('p', {class: 'said', 'data-slug': x.slug}, name(card(x.slug).name), ': ', answer(x, i))),
    everybody(i));
}
const goldShares = i => questionOf(i).options.map((x, n) => h('span', {class: 'share'}, name(x), ` ${number(items.soft[i][n], 2)} `));
function answer(s, i) {
  const said = [name(optionOf(i, s.saidOf[i])), s.confidenceOf === null ? ' (a label without a probability)' : ` (${number(s.confidenceOf[i], 2)})`];
  return soft() ? said : [h('span', {class: right(s, i) ? 'right' : 'wrong'}, right(s, i) ? '✓ right' : '✗ wrong'), ', said ', said];
}
function everybody(i) {
  const n = items.systems.length, body = h('div', {class: 'scroll'});
  const fill = () => { if (!body.childElementCount) body.append(h('table', {class: 'live'}, h('thead', {}, h('tr', {}, ['System', 'Said', 'Confidence', ...(soft() ? [] : ['Outcome'])].map(t => h('th', {scope: 'col'}, t)))),
    h('tbody', {}, items.systems.map(s => h('tr', {'data-slug': s.slug}, h('th', {scope: 'row'}, name(card(s.slug).name)), h('td', {}, name(optionOf(i, s.saidOf[i]))), h('td', {}, s.confidenceOf === null ? '–' : number(s.confidenceOf[i], 2)),
      soft() ? null : h('td', {class: right(s, i) ? 'right' : 'wrong'}, right(s, i) ? '✓ right' : '✗ wrong')))))); };
  return h('details', {ontoggle: fill}, h('summary', {}, soft() ? `${n} systems` : `Wrong: ${items.wrongs[i]} of ${n} systems`), body);
}

function draw() {
  const one = items.questions.length === 1 ? items.questions[0] : null;
  page.replaceChildren(controls(), one && one.instructions ? h('p', {class: 'facts', dir: 'auto'}, 'Question: ', name(one.instructions), ' ', one.options.map((o, n) => [n ? ' · ' : '', h('strong', {}, name(o)), one.descriptions[n] ? [' (', name(one.descriptions[n]), ')'] : null])) : '',
    h('p', {class: 'facts', id: 'found', role: 'status'}), h('div', {id: 'list'}), h('div', {id: 'more'}),
    h('p', {class: 'notes'}, index.note, ' Characters that turn the direction of a text are shown by name. ', h('a', {href: pageAddress('board.html', {suite: state.suite === DEFAULTS.suite ? '' : state.suite, split: board.name})}, 'To the board'), '.'));
  drawList();
}

async function open(changes) {
  state = {...(state || readState(DEFAULTS)), ...changes};
  try {
    index = await read('index.json');
    if (!index.suites.length) { page.replaceChildren(h('p', {}, 'No system has predictions yet.')); return; }
    const suite = index.suites.find(s => s.name === state.suite) || index.suites[0], split = suite.splits.find(s => s.name === state.split) || suite.splits[0];
    [board, items] = await Promise.all([readBoard(suite.name, split.name), readItems(suite.name, split.name)]);
    const first = page.dataset.ready === undefined;
    state = {...all(), ...Object.fromEntries(Object.entries(state).filter(([k]) => k in all())), ...(first ? readState(all()) : {}), suite: suite.name, split: split === suite.splits[0] ? '' : split.name};
    board.filters.forEach(f => { if (!f.values.map(String).includes(chosenOf(f))) state[filterKey(f)] = ''; });
    prepare();
    set({});
    draw();
    page.dataset.ready = `${suite.name}/${split.name}`;
  } catch (e) { failed(page, e); }
}
if (page) open({});
