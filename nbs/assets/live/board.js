// The live leaderboard: choose a data set, filter, sort, and compare two systems.
import {h, name, plain, parts, option, chooser, choice, failed} from './dom.js';
import {read, readBoard, unpackBits, unpack8, unpack16, NONE, readState, writeState, pageAddress} from './data.js';
import {wilson, allPairs, tiers, detectable, mcnemar, percent, number, signed, small} from './stats.js';

const DEFAULTS = {suite: 'polyroute', split: '', items: '', tracks: '', name: '', sort: '', a: '', b: ''};
const page = document.getElementById('live-board');
let state = readState(DEFAULTS), index, board, shown;

const mean = v => v.reduce((s, x) => s + x, 0)/v.length;
const sum = v => v.reduce((s, x) => s + x, 0);

// ---- What is shown: one row a system, on the chosen items

function chosenItems() {
  const [key, value] = split2(state.items), f = board.filters.find(f => f.key === key), at = f ? f.values.map(String).indexOf(value) : -1;
  const all = Array.from({length: board.items}, (_, i) => i);
  if (at < 0) return {whole: true, where: all, label: 'all items'};
  const of = unpack8(f.of);
  return {whole: false, where: all.filter(i => of[i] === at), label: `${f.title}: ${plain(f.names[at])}`};
}
const split2 = text => { const i = text.indexOf(':'); return i < 0 ? [text, ''] : [text.slice(0, i), text.slice(i + 1)]; };

function sources(where) {
  if (!board.clusters) return where.length;
  const of = unpack16(board.clusters);
  return new Set(where.map(i => of[i])).size;
}

// Scores on the chosen items; what needs a bootstrap or probabilities is known for the whole data set only
export function compute(board, chosen) {
  const {where, whole} = chosen, n = where.length;
  if (board.kind === 'soft') return board.systems.map(s => ({...card(s.slug), ...s, score: s.loss ? whole ? s.log_score : mean(where.map(i => s.loss[i])) : null, lo: whole ? s.lo : null, hi: whole ? s.hi : null, expected: whole ? s.expected_accuracy : null}));
  const hits = board.systems.map(s => { const all = unpackBits(s.hit, board.items); return Uint8Array.from(where, i => all[i]); });
  const pairs = allPairs(hits), tier = tiers(hits, pairs, board.alpha), right = hits.map(sum);
  const rows = board.systems.map((s, i) => {
    const [lo, hi] = wilson(right[i], n), c = card(s.slug);
    const extra = whole ? s : {slug: s.slug};
    return {...c, ...extra, i, right: right[i], items: n, accuracy: right[i]/n, lo, hi, tier: tier[i], hits: hits[i],
      rank: c.track === 'ref' ? null : 1 + board.systems.filter((o, j) => card(o.slug).track === c.track && right[j] > right[i]).length};
  });
  rows.pairs = pairs;
  return rows;
}
const card = slug => index.systems.find(s => s.slug === slug) || {name: slug, track: '', what: '', colour: '#777777'};

// ---- Columns

const places = r => r.rank_lo === r.rank_hi ? String(r.rank_lo) : `${r.rank_lo}–${r.rank_hi}`;
const COLUMNS = {
  accuracy: [
    {key: 'system', title: 'System', up: true, value: r => r.name.toLowerCase(), cell: systemCell},
    {key: 'track', title: 'Track', up: true, value: r => r.track, cell: r => r.track},
    {key: 'rank', title: 'Rank in track', up: true, value: r => r.rank, cell: r => r.rank === null ? '–' : String(r.rank)},
    {key: 'tier', title: 'Tier', up: true, value: r => r.tier, cell: r => String(r.tier)},
    {key: 'places', title: 'Places', up: true, whole: true, value: r => r.rank_lo, cell: places},
    {key: 'accuracy', title: 'Accuracy [95% CI]', value: r => r.accuracy, cell: r => [h('span', {class: 'value'}, percent(r.accuracy, r.lo, r.hi)), bar(r, r.accuracy)]},
    {key: 'seeds', title: 'All seeds', whole: true, value: r => r.seeds ? Math.min(...r.seeds.accuracy) : null, cell: r => r.seeds ? r.seeds.accuracy.map(a => percent(a)).join(' / ') : '–'},
    {key: 'macro_f1', title: 'Macro-F1', whole: true, value: r => r.macro_f1, cell: r => number(r.macro_f1)},
    {key: 'nll', title: 'NLL', up: true, whole: true, value: r => r.nll, cell: r => number(r.nll)},
    {key: 'ece', title: 'ECE (noise)', up: true, whole: true, value: r => r.ece, cell: r => `${number(r.ece)} (${number(r.ece_floor)})`}],
  soft: [
    {key: 'system', title: 'System', up: true, value: r => r.name.toLowerCase(), cell: systemCell},
    {key: 'track', title: 'Track', up: true, value: r => r.track, cell: r => r.track},
    {key: 'score', title: 'Log score [95% CI]', up: true, value: r => r.score, cell: r => r.score === null ? 'unavailable' : [h('span', {class: 'value'}, r.lo === null ? number(r.score) : `${number(r.score)} [${number(r.lo)}–${number(r.hi)}]`), bar(r, r.score)]},
    {key: 'expected', title: 'Expected accuracy', whole: true, value: r => r.expected, cell: r => percent(r.expected)}]};

function systemCell(r) { return [h('span', {class: 'system', title: plain(r.what)}, name(r.name)), h('small', {class: 'on-phone'}, `Track ${r.track}`)]; }

function axis(rows) {
  const lo = rows.map(r => r.lo).filter(x => x !== null && x !== undefined), hi = rows.map(r => r.hi).filter(x => x !== null && x !== undefined);
  if (!lo.length) return null;
  return board.kind === 'soft' ? [Math.floor(10*Math.min(...lo))/10, Math.max(...hi)] : [Math.floor(10*Math.min(...lo))/10, 1];
}
function bar(r, value) {
  if (!shown.axis || r.lo === null) return null;
  const at = x => `${(100*(x - shown.axis[0])/(shown.axis[1] - shown.axis[0] || 1)).toFixed(2)}%`;
  const e = h('span', {class: 'bar', 'aria-hidden': 'true'}, h('i'), h('b'));
  for (const [k, v] of [['--lo', r.lo], ['--hi', r.hi], ['--at', value]]) e.style.setProperty(k, at(v));
  if (/^#[0-9a-f]{6}$/i.test(r.colour)) e.style.setProperty('--colour', r.colour);
  return e;
}

// ---- Sorting and filtering of rows

function columns() { return COLUMNS[board.kind].filter(c => (shown.chosen.whole || !c.whole) && (c.key !== 'seeds' || shown.rows.some(r => r.seeds))); }
function sorting() {
  const key = state.sort.replace(/^-/, ''), col = columns().find(c => c.key === key);
  if (!col) return {key: board.kind === 'soft' ? 'score' : 'accuracy', down: board.kind !== 'soft'};
  return {key, down: state.sort.startsWith('-')};
}
export function sorted(rows, value, down) {
  const empty = x => x === null || x === undefined || Number.isNaN(x);
  return [...rows].sort((r, s) => {
    const x = value(r), y = value(s);
    if (empty(x) || empty(y)) return empty(x) - empty(y);
    return (x < y ? -1 : x > y ? 1 : 0)*(down ? -1 : 1);
  });
}
function tracks() { return state.tracks ? state.tracks.split(',') : Object.keys(index.tracks); }
function visible() {
  const t = tracks(), text = state.name.toLowerCase(), {key, down} = sorting(), col = columns().find(c => c.key === key);
  return sorted(shown.rows.filter(r => t.includes(r.track) && (r.name.toLowerCase().includes(text) || r.slug.includes(text))), col.value, down);
}

// ---- Drawing

function set(changes) { state = {...state, ...changes}; writeState(state, DEFAULTS); }
function draw() {
  const chosen = chosenItems();
  shown = {chosen, rows: []};
  shown.rows = compute(board, chosen);
  if (state.a && !shown.rows.some(r => r.slug === state.a)) set({a: ''});
  if (state.b && !shown.rows.some(r => r.slug === state.b)) set({b: ''});
  page.replaceChildren(controls(), h('p', {class: 'facts', id: 'facts'}, facts()), h('div', {id: 'table'}), h('div', {id: 'ticked', class: 'ticked', role: 'status'}), h('section', {id: 'comparison', 'aria-labelledby': 'comparison-title'}), notes());
  drawTable();
  drawComparison();
}

function controls() {
  const suite = index.suites.find(s => s.name === state.suite);
  const choose = board.filters.map(f => h('optgroup', {label: f.title}, f.values.map((v, n) => option(`${f.key}:${v}`, `${f.names[n]} (${unpack8(f.of).filter(x => x === n).length})`, state.items))));
  return h('div', {class: 'controls'},
    index.suites.length > 1 ? choice('Suite', index.suites.map(s => [s.name, s.title]), state.suite, v => open({suite: v, split: '', items: '', sort: ''})) : null,
    choice('Data set', suite.splits.map(s => [s.name, s.title, s.items]), board.name, v => open({split: v, items: '', sort: ''})),
    h('div', {class: 'fields'},
      chooser('Items', state.items, [option('', `All (${board.items})`, state.items), ...choose], v => { set({items: v}); draw(); document.getElementById('items').focus(); }, {id: 'items'}),
      h('fieldset', {class: 'field tracks'}, h('legend', {}, 'Tracks'), Object.entries(index.tracks).map(([t, what]) =>
        h('label', {title: what}, h('input', {type: 'checkbox', class: 'form-check-input', value: t, checked: tracks().includes(t), onchange: changeTracks}), ` ${t}`))),
      h('label', {class: 'field'}, h('span', {}, 'System'), h('input', {type: 'search', class: 'form-control form-control-sm', id: 'name', value: state.name, placeholder: 'part of a name', oninput: e => { set({name: e.target.value}); drawTable(); }}))));
}
function changeTracks() {
  const on = [...page.querySelectorAll('.tracks input:checked')].map(e => e.value);
  set({tracks: on.length === Object.keys(index.tracks).length ? '' : on.join(',') || 'none'});
  drawTable();
}

function facts() {
  const n = shown.chosen.where.length, m = sources(shown.chosen.where);
  const size = `${shown.chosen.whole ? '' : `${shown.chosen.label}. `}${n} item${n === 1 ? '' : 's'} from ${m} source${m === 1 ? '' : 's'}, ${shown.rows.length} systems.`;
  const clustered = m < n ? ' Items of one source are not independent: intervals and p-values that count items are too narrow here; the interval of a difference draws sources.' : '';
  if (board.kind === 'soft') return `${size} Several answers are right, each with a probability: the log score is the cross-entropy against them, lower is better` + (shown.chosen.whole && shown.rows.length ? `; ${number(shown.rows[0].entropy)} is the least possible.` : '.') + clustered;
  return size + (shown.chosen.whole ? ` ${board.note.replace(/^\d+ items[.;] ?/, '')}` : ' Tiers and ranks are of these items alone.') + clustered;
}

function drawTable() {
  const rows = visible(), cols = columns(), {key, down} = sorting();
  shown.axis = axis(rows);
  const head = h('tr', {}, h('th', {scope: 'col', class: 'pick'}, h('span', {class: 'visually-hidden'}, 'Compare')), cols.map(c =>
    h('th', {scope: 'col', class: c.key, 'aria-sort': c.key !== key ? null : down ? 'descending' : 'ascending'},
      h('button', {type: 'button', onclick: () => sortBy(c)}, c.title, h('span', {class: 'arrow', 'aria-hidden': 'true'}, c.key !== key ? '' : down ? ' ▾' : ' ▴')),
      c.key === mainColumn() && shown.axis ? scale() : null)));
  const ordered = board.kind === 'accuracy' && key === 'accuracy';
  const body = rows.map((r, n) => h('tr', {'data-slug': r.slug, class: ordered && n && r.tier !== rows[n - 1].tier ? 'next-tier' : null},
    h('td', {class: 'pick'}, h('input', {type: 'checkbox', class: 'form-check-input', checked: r.slug === state.a || r.slug === state.b, 'aria-label': `Compare ${plain(r.name)}`, onchange: e => tick(r.slug, e.target.checked)})),
    cols.map(c => h(c.key === 'system' ? 'th' : 'td', {class: c.key, scope: c.key === 'system' ? 'row' : null}, c.cell(r)))));
  const empty = rows.length ? null : h('p', {class: 'empty'}, 'No system fits.');
  document.getElementById('table').replaceChildren(h('div', {class: 'scroll', role: 'region', tabindex: '0', 'aria-label': 'Leaderboard'},
    h('table', {class: 'live'}, h('caption', {}, `${board.title}, ${shown.chosen.label}. Tick two systems to compare them.`), h('thead', {}, head), h('tbody', {}, body))), empty ?? '', absent() ?? '');
}
const mainColumn = () => board.kind === 'soft' ? 'score' : 'accuracy';
function scale() {
  const [lo, hi] = shown.axis, f = x => board.kind === 'soft' ? x.toFixed(1) : `${Math.round(100*x)}`;
  return h('span', {class: 'scale', 'aria-hidden': 'true'}, h('span', {}, f(lo)), h('span', {}, f(hi)));
}
function sortBy(c) {
  const {key, down} = sorting();
  const next = key === c.key ? !down : !c.up;
  set({sort: c.key === mainColumn() && next === (board.kind !== 'soft') ? '' : (next ? '-' : '') + c.key});
  drawTable();
  page.querySelector(`th.${c.key} button`).focus();
}
function absent() {
  const list = Object.entries(board.absent);
  if (!list.length) return null;
  return h('details', {class: 'absent'}, h('summary', {}, `Without predictions here: ${list.length} system${list.length === 1 ? '' : 's'}`), h('ul', {}, list.map(([slug, why]) => h('li', {'data-slug': slug}, name(card(slug).name), ': ', parts(why)))));
}
function notes() {
  return h('div', {class: 'notes'}, h('p', {}, board.kind === 'soft' ? 'The interval of a log score is a bootstrap of the items.'
    : `Intervals are Wilson's. Tier: systems that exact McNemar does not separate from the tier's leader, Holm-corrected over all pairs, α = ${board.alpha}. Places: 95% of 2,000 resamples of the items. Noise: the ECE of a perfectly calibrated system on as many items.`),
    h('p', {}, Object.entries(index.tracks).map(([t, what]) => `Track ${t}: ${what}.`).join(' ')),
    h('p', {}, index.note, ' ', h('a', {href: pageAddress('explorer.html', {suite: state.suite === DEFAULTS.suite ? '' : state.suite, split: board.name})}, 'Read the items'), '.'));
}

// ---- Comparing two systems

function tick(slug, on) {
  let [a, b] = [state.a, state.b];
  if (!on) { if (a === slug) [a, b] = [b, '']; else b = ''; }
  else if (!a) a = slug;
  else if (!b) b = slug;
  else [a, b] = [b, slug];
  set({a, b});
  page.querySelectorAll('tr[data-slug] .pick input').forEach(e => { const s = e.closest('tr').dataset.slug; e.checked = s === a || s === b; });
  drawComparison();
}

// The pair's numbers on the chosen items: what polyroute.leaderboard.compare returns
export function comparePair(board, rows, chosen, first, second) {
  const x = rows.find(r => r.slug === first), y = rows.find(r => r.slug === second), n = chosen.where.length;
  const i = board.systems.findIndex(s => s.slug === first), j = board.systems.findIndex(s => s.slug === second), s = board.systems.length;
  const at = (i, j) => i*s - i*(i + 1)/2 + j - i - 1;
  const whole = chosen.whole ? i < j ? [board.intervals.lo[at(i, j)], board.intervals.hi[at(i, j)]] : [-board.intervals.hi[at(j, i)], -board.intervals.lo[at(j, i)]] : [null, null];
  if (board.kind === 'soft') return {first: x, second: y, items: n, difference: x.score === null || y.score === null ? null : x.score - y.score, lo: whole[0], hi: whole[1]};
  let both = 0, b = 0, c = 0;
  for (let k = 0; k < n; k++) { if (x.hits[k] && y.hits[k]) both++; else if (x.hits[k]) b++; else if (y.hits[k]) c++; }
  const pair = rows.pairs.find(q => (q.i === i && q.j === j) || (q.i === j && q.j === i));
  return {first: x, second: y, items: n, both, b, c, neither: n - both - b - c, difference: (b - c)/n, lo: whole[0], hi: whole[1], p: mcnemar(b, c), holm: pair.holm, pairs: rows.pairs.length, detectable: detectable(n, (b + c)/n, board.alpha)};
}

export function verdict(r, alpha) {
  if (r.p >= alpha) return ['Not separated', `: this many items cannot tell the two apart at α = ${alpha}.`];
  const better = r.b > r.c ? r.first : r.second;
  return [[name(better.name), ' is better'], r.holm < alpha ? ', also after Holm\'s correction for every pair of the board.' : ', but not after Holm\'s correction for every pair of the board: do not pick this pair out afterwards.'];
}

function drawComparison() {
  const where = document.getElementById('comparison'), bar = document.getElementById('ticked');
  const ticked = [state.a, state.b].filter(Boolean).map(s => shown.rows.find(r => r.slug === s));
  bar.hidden = !ticked.length;
  if (ticked.length < 2) {
    bar.replaceChildren(...(ticked.length ? [h('span', {}, name(ticked[0].name), ' ticked: tick one more to compare.'), clear()] : []));
    where.replaceChildren();
    return;
  }
  const r = comparePair(board, shown.rows, shown.chosen, state.a, state.b);
  where.replaceChildren(h('h2', {id: 'comparison-title'}, name(r.first.name), ' against ', name(r.second.name)), h('p', {class: 'facts'}, `${board.title}, ${shown.chosen.label}: ${r.items} items.`), board.kind === 'soft' ? softComparison(r) : pairedTable(r));
  const short = board.kind === 'soft' ? r.difference === null ? 'unavailable' : `${signed3(r.difference)} nats` : `${signed(100*r.difference)} points, p = ${small(r.p)}`.replace('= <', '<');
  bar.replaceChildren(h('span', {}, name(r.first.name), ' − ', name(r.second.name), `: ${short}`), h('a', {href: '#comparison', class: 'plain strong', onclick: e => { e.preventDefault(); where.scrollIntoView({block: 'start'}); }}, 'Details'), clear());
}
const clear = () => h('button', {type: 'button', class: 'plain', onclick: () => { set({a: '', b: ''}); page.querySelectorAll('.pick input').forEach(e => { e.checked = false; }); drawComparison(); }}, 'Clear');
const signed3 = x => (x < 0 ? '' : '+') + number(x);

function pairedTable(r) {
  const [strong, rest] = verdict(r, board.alpha), link = (a, b, n) => h('a', {href: items(r, a, b), title: 'Read these items'}, String(n));
  const side = (head, one, two) => h('tr', {}, h('th', {scope: 'row'}, head), one, two);
  return h('div', {class: 'compared'},
    h('p', {class: 'verdict', id: 'verdict'}, h('strong', {}, strong), rest),
    h('table', {class: 'live paired'}, h('caption', {}, 'Items by which system is right; a number leads to its items.'),
      h('thead', {}, h('tr', {}, h('td', {}), h('th', {scope: 'col'}, name(r.second.name), ' right'), h('th', {scope: 'col'}, name(r.second.name), ' wrong'))),
      h('tbody', {}, side([name(r.first.name), ' right'], h('td', {id: 'both'}, link('right', 'right', r.both)), h('td', {id: 'only-first'}, link('right', 'wrong', r.b))),
        side([name(r.first.name), ' wrong'], h('td', {id: 'only-second'}, link('wrong', 'right', r.c)), h('td', {id: 'neither'}, link('wrong', 'wrong', r.neither))))),
    h('dl', {}, [
      ['Accuracy', `${percent(r.first.accuracy)} and ${percent(r.second.accuracy)}`, 'accuracies'],
      ['Difference', `${signed(100*r.difference)} points${r.lo === null ? '' : ` [${signed(100*r.lo)}, ${signed(100*r.hi)}]`}`, 'difference'],
      ['p (exact McNemar)', small(r.p), 'p'],
      [`p (Holm, all ${r.pairs} pairs)`, small(r.holm), 'holm'],
      ['Smallest detectable difference', r.detectable === null ? 'none: even a clean sweep would not be significant' : `${number(100*r.detectable, 1)} points`, 'detectable']]
      .map(([t, d, id]) => h('div', {}, h('dt', {}, t), h('dd', {id}, d)))),
    h('p', {class: 'small'}, `Smallest detectable: the difference that exact McNemar finds with 80% power at α = ${board.alpha} on as many items with as many disagreements. `, r.lo === null ? 'The interval of the difference is known for all items only.' : 'The interval is a paired bootstrap of the sources.'));
}
function softComparison(r) {
  const open = r.lo !== null && r.lo <= 0 && r.hi >= 0;
  return h('div', {class: 'compared'},
    h('p', {class: 'verdict', id: 'verdict'}, r.difference === null ? 'Unavailable: a system that gives labels only has no log score.' : r.lo === null ? 'The interval of the difference is known for all items only.' : open ? h('strong', {}, 'Not separated') : h('span', {}, h('strong', {}, name((r.difference < 0 ? r.first : r.second).name), ' is better'), ': its log score is lower.')),
    h('dl', {}, h('div', {}, h('dt', {}, 'Difference in log score'), h('dd', {id: 'difference'}, r.difference === null ? 'unavailable' : `${signed3(r.difference)}${r.lo === null ? '' : ` [${signed3(r.lo)}, ${signed3(r.hi)}]`}`))));
}
function items(r, first, second) {
  const [key, value] = split2(state.items);
  return pageAddress('explorer.html', {suite: state.suite === DEFAULTS.suite ? '' : state.suite, split: board.name, system: r.first.slug, outcome: first, other: r.second.slug, other_outcome: second, ...(key ? {[`in.${key}`]: value} : {})});
}

// ---- Opening a data set

async function open(changes) {
  set(changes);
  try {
    index = await read('index.json');
    if (!index.suites.length) { page.replaceChildren(h('p', {}, 'No system has predictions yet.')); return; }
    const suite = index.suites.find(s => s.name === state.suite) || index.suites[0], split = suite.splits.find(s => s.name === state.split) || suite.splits[0];
    board = await readBoard(suite.name, split.name);
    set({suite: suite.name, split: split === suite.splits[0] ? '' : split.name});
    draw();
    page.dataset.ready = `${suite.name}/${split.name}`;
  } catch (e) { failed(page, e); }
}
if (page) open({});
