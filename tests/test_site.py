"""The live pages: their data, and the pages themselves in headless Chromium, on toy data with hostile texts and on the frozen outputs.

The pages are built once, without the notebooks, and served below a sub-path."""
import json, os, random, shutil, subprocess, sys, tempfile, threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations
from pathlib import Path
import numpy as np
import pytest
from hypothesis import given, strategies as st
from polyroute import items, metrics, significance, site
from polyroute.items import DEPARTMENT, SPLITS, TWELVE, VARIETIES, DataError, Item, Question, read_items, write_jsonl
from polyroute.leaderboard import compare, comparison_row, main_table, read_board
from polyroute.metrics import number, percent
from polyroute.predictions import frozen, write_predictions
from polyroute.significance import bootstrap_difference, holm, mcnemar_exact, mcnemar_power, tiers
from polyroute.audit import soft_losses
from polyroute.site import NONE, board_json, difference_intervals, filters, items_json, pack, split_names, suite_board, write_pages_data
from polyroute.systems import UnsupportedQuestion, evaluate
from conftest import Toy, even, fast, right_on, toy_items

ROOT = Path(__file__).parents[1]
SCRIPT = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1"> & "quoted" \'single\''
TURNED = '\u202Eevil\u202C and \u2067more\u2069\u2069\u2069'
HEBREW = 'שלום, החשבונית שלי שגויה: 42€ (פעמיים)'
NAME = 'B<b>old</b> \u202Ename'
COLOURS = Question('colour', 'choice', 'Which colour <i>is</i> it?', (('red', 'as <b>blood</b>'), ('blue', ''), ('green', ''), ('none of them', '')))
SOFT = ('billing', 'technical', 'other')


# ---- Data

def hostile(n=120):
    "Toy items of which some hold markup, turned or right-to-left text, and lone signs."
    extra = {0: SCRIPT, 1: TURNED, 2: HEBREW, 3: '\n\nlines\n\tand tabs ', 4: '', 5: '👩🏽‍💻 e\u0301'}
    return toy_items(n, meta=lambda i: {'language': TWELVE[i % 12]}, id=lambda i: f'<i>{i:03d}</i>' if i < 3 else f'i{i:03d}', state=lambda i: extra.get(i, f'text {i}'))

def soft_items(n=30):
    share = lambda i: dict(zip(SOFT, np.roll([.6, .3, .1], i % 3).tolist()))
    return [Item(f's{i:03d}', f'{i % 3} unclear {i}', DEPARTMENT, None, share(i), {'language': TWELVE[i % 12]}) for i in range(n)]

def dialogues(n=60):
    "Two questions with different options; three items a source."
    return [i for k, q in enumerate((DEPARTMENT, COLOURS)) for i in
            [Item(f'{q.name}{j}', f'{j % len(q.options)} {q.name} {j}', q, q.options[j % len(q.options)], None, {'cluster': f'c{k}{j//3}', 'variety': list(VARIETIES)[j % 3], 'turns': 2 + j % 2, 'note': f'{j}'}) for j in range(n)]]

def department_only(texts, question):
    if question != DEPARTMENT: raise UnsupportedQuestion('knows departments only')
    return even(texts, question)

def certain(share, salt): return lambda t, q: np.eye(len(q.options))[right_on(share, salt)(t, q).argmax(1)]

@pytest.fixture(scope='session')
def toy(tmp_path_factory):
    "Data and outputs of a toy benchmark with a suite, a soft split, seeds, labels without probabilities, and systems that lack something."
    d = tmp_path_factory.mktemp('site')
    save = lambda name, rows: read_items(write_jsonl(d/'data'/f'{name}.jsonl', (i.to_row() for i in rows)), name.split('/')[-1])
    main, mixed, soft = save('ml_test', hostile()), save('mix_test', toy_items(60, meta=lambda i: {'variety': list(VARIETIES)[i % 3]}, id=lambda i: f'm{i:03d}')), save('boundary', soft_items())
    talk, kept = save('romcom/talk.id-en', dialogues()), save('human/kept', toy_items(24, id=lambda i: f'k{i}'))
    out = d/'out'
    for slug, track, share in [('best', 'C', .97), ('second', 'B', .95), ('equal', 'B', .95), ('middle', 'A', .75), ('low', 'ref', .4)]:
        t = Toy(slug, track, right_on(share, slug), name=NAME if slug == 'middle' else slug.title())
        for data, suite in ((main, None), (mixed, None), (soft, None), (talk, 'romcom'), (kept, 'human')): evaluate(t, data, out, suite=suite)
    for seed in (1, 2): evaluate(Toy('seeds', 'C', right_on(.8, f'seed{seed}'), seeds=[1, 2]), main, out, seed=seed)
    labels = Toy('labels', 'ref', certain(.9, 'l'))
    for data in (main, soft): evaluate(labels, data, out, header=dict(labels_only=True))
    evaluate(Toy('departments', 'A', department_only), talk, out, suite='romcom')
    evaluate(Toy('departments', 'A', department_only), mixed, out)
    evaluate(Toy('stressed', 'A', right_on(.5, 's')), main, out, condition='order-1')
    (out/'systems'/'best'/'romcom'/'talk.id-en.responses.jsonl').write_text('{}\n')
    return d

@pytest.fixture
def toy_home(toy, monkeypatch):
    monkeypatch.setenv('POLYROUTE_DATA', str(toy/'data'))
    monkeypatch.setenv('POLYROUTE_OUTPUTS', str(toy/'out'))
    return toy

def unpacked(text, bits, n=None):
    import base64
    raw = np.frombuffer(base64.b64decode(text), np.uint8)
    return np.unpackbits(raw)[:n] if bits == 1 else raw if bits == 8 else raw.view('<u2')

@fast
@given(st.lists(st.booleans()), st.lists(st.integers(0, 255)), st.lists(st.integers(0, 65535)))
def test_packed_numbers_come_back(a, b, c):
    assert unpacked(pack(a, 1), 1, len(a)).astype(bool).tolist() == a
    assert unpacked(pack(b), 8).tolist() == b and unpacked(pack(c, 16), 16).tolist() == c

@fast
@given(st.integers(2, 30), st.integers(2, 5), st.booleans(), st.integers(0, 5))
def test_intervals_of_all_pairs_are_those_of_each(n, s, clustered, seed):
    rng = np.random.default_rng(seed)
    x, clusters = rng.integers(0, 2, (n, s)), rng.integers(0, 4, n) if clustered else None
    lo, hi = difference_intervals(x, clusters, n_boot=200)
    for i, j in combinations(range(s), 2):
        e = bootstrap_difference(x[:, i], x[:, j], n_boot=200, clusters=clusters)
        assert (lo[i, j], hi[i, j]) == (e.lo, e.hi) and (lo[j, i], hi[j, i]) == pytest.approx((-e.hi, -e.lo))

def test_canonical_predictions_only(toy_home):
    assert split_names() == ['ml_test', 'mix_test', 'boundary'] and split_names('romcom') == ['talk.id-en'] and split_names('pingpong') == []

def test_systems_without_predictions_say_why(toy_home):
    assert suite_board('polyroute', 'ml_test').absent == {'departments': 'not run', 'stressed': 'not run'}
    assert suite_board('romcom', 'talk.id-en').absent == {'departments': 'n/a: knows departments only', 'labels': 'not run', 'seeds': 'not run', 'stressed': 'not run'}

def test_predictions_on_other_data_are_no_result(toy_home, tmp_path, monkeypatch):
    shutil.copytree(toy_home/'data', tmp_path/'data')
    path = tmp_path/'data'/'romcom'/'talk.id-en.jsonl'
    path.write_text(path.read_text(encoding='utf-8').replace('colour 7', 'colour seven'), encoding='utf-8')
    monkeypatch.setenv('POLYROUTE_DATA', str(tmp_path/'data'))
    b = suite_board('romcom', 'talk.id-en')
    assert not b.cards and b.absent['best'] == 'unavailable: made on other data'

def test_a_suite_without_its_data_has_no_tab(toy_home, tmp_path, monkeypatch):
    shutil.copytree(toy_home/'data', tmp_path/'data')
    shutil.rmtree(tmp_path/'data'/'romcom')
    monkeypatch.setenv('POLYROUTE_DATA', str(tmp_path/'data'))
    write_pages_data(tmp_path/'live')
    assert [s['name'] for s in json.loads((tmp_path/'live'/'index.json').read_text())['suites']] == ['polyroute', 'human']

def test_the_files_say_what_the_library_says(toy_home, tmp_path):
    files = {p.relative_to(tmp_path).as_posix(): p.read_text(encoding='utf-8') for p in write_pages_data(tmp_path)}
    assert set(files) == {'index.json'} | {f'{s}/{n}{k}.json' for s, n in [('polyroute', 'ml_test'), ('polyroute', 'mix_test'), ('polyroute', 'boundary'), ('romcom', 'talk.id-en'), ('human', 'kept')] for k in ('', '.items')}
    assert not any(str(toy_home) in t for t in files.values()) and all('NaN' not in t for t in files.values())
    board, it = json.loads(files['romcom/talk.id-en.json']), json.loads(files['romcom/talk.id-en.items.json'])
    data = site.SUITES['romcom'].load('talk.id-en')
    for row, s in zip(board['systems'], it['systems']):
        p = frozen(row['slug'], 'talk.id-en', data=data, suite='romcom')
        assert (unpacked(row['hit'], 1, len(data)) == p.hit).all() and (unpacked(s['said'], 8) == metrics.decide(p.probs)).all()
        assert np.abs(unpacked(s['confidence'], 16)/10000 - p.conf).max() <= 5.1e-5
    assert (board['items'], board['sources']) == (120, 40) and len(set(unpacked(board['clusters'], 16))) == 40
    assert [f['key'] for f in board['filters']] == ['variety', 'gold', 'question', 'turns']      # not `note`, with its many values
    assert it['states'] == data.states and len(it['questions']) == 2
    assert json.loads(files['human/kept.items.json'])['states'] is None      # a publisher's texts
    assert [s for s in json.loads(files['polyroute/ml_test.items.json'])['systems'] if s['slug'] == 'labels'][0]['confidence'] is None
    first = write_pages_data(tmp_path/'again')
    assert {p.name: p.read_text() for p in first} == {p.name: p.read_text() for p in (tmp_path/'again').rglob('*.json')} and all((tmp_path/p.relative_to(tmp_path/'again')).read_bytes() == p.read_bytes() for p in first)

def test_soft_labels_are_scored_by_the_log_score(toy_home):
    b = suite_board('polyroute', 'boundary')
    assert b.slugs[-1] == 'labels'
    for r, p in zip(board_json(b)['systems'], b.predictions):
        if r['slug'] == 'labels': assert r['loss'] is None and r['lo'] is None
        else: assert r['log_score'] == metrics.log_score(p.probs, b.data.soft) == pytest.approx(soft_losses(p.probs, b.data.soft).mean()) and r['lo'] < r['log_score'] < r['hi']

def test_filters_cover_the_items(toy_home):
    data = site.SUITES['romcom'].load('talk.id-en')
    for f in filters(data):
        of = unpacked(f['of'], 8)
        assert all(data.groups(f['key'])[v].tolist() == np.flatnonzero(of == n).tolist() for n, v in enumerate(f['values'])) if f['key'] != 'question' else (of < 2).all()


# ---- What the builder adds to the notebooks' pages

@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT/'tools'))
    pytest.importorskip('nbdev')
    import build_docs, pages
    return build_docs, pages

def test_every_command_is_documented_by_its_help(tools):
    from polyroute.cli import main
    def walk(group, path): return [path] + [q for n, c in group.commands.items() for q in (walk(c, (*path, n)) if hasattr(c, 'commands') else [(*path, n)])]
    def modules(group): return {group.callback.__module__} | {m for c in group.commands.values() for m in (modules(c) if hasattr(c, 'commands') else {c.callback.__module__})}
    found = [(c, path) for m in modules(main) for o in tools[1].commands(main, m).values() for c, path in o]
    assert sorted(path for _, path in found) == sorted(walk(main, ('polyroute',)))
    for c, path in found: assert f"### {' '.join(path)}\n" in (text := tools[1].usage(c, path)) and 'Usage: ' + ' '.join(path) in text and '\b' not in text

def test_a_class_is_documented_by_its_fields(tools):
    text = tools[1].record(site.Suite)
    assert 'class Suite(NamedTuple):\n    title: str\n' in text and '# whether its texts may stand on a public page' in text and '*A tab of the live pages.*' in text and './source/site.html#L-' in text

def test_pages_are_mended(tools):
    page = '<head></head><img src="a.png"> </p><figcaption>Figure 1: x &lt; "y" &amp; <b>z</b></figcaption><img src="b.png"><img alt="c" src="c.png"><th></th>'
    out = tools[0].mended(page, '../')
    assert '<img src="a.png" alt="Figure 1: x &lt; &quot;y&quot; &amp; z">' in out and out.count('alt=') == 3 and '<td></td>' in out and 'href="../assets/site.css"' in out


# ---- The pages

BOARDS = {}

def board_of(name, suite='polyroute'):
    "The library's board, read once for the toy and once for the frozen outputs."
    key = os.environ.get('POLYROUTE_OUTPUTS'), suite, name
    if key not in BOARDS: BOARDS[key] = suite_board(suite, name)
    return BOARDS[key]

def chromium_path(): return next((p for n in ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable') if (p := shutil.which(n))), None)

FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-default-apps', '--disable-extensions']

@pytest.fixture(scope='module')
def browser():
    "Chromium, closed with this file: while it is open its event loop is the thread's, and no other test could run one."
    api = pytest.importorskip('playwright.sync_api', reason='the Python package playwright is not installed')
    if not chromium_path(): pytest.skip('there is no Chromium: apt-get install chromium')
    with api.sync_playwright() as p:
        b = p.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        yield b
        b.close()

class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args): pass

@pytest.fixture(scope='module')
def address(browser, toy, tmp_path_factory):
    "The two pages with toy data and with the frozen outputs, each below a sub-path of a file server."
    root = tmp_path_factory.mktemp('served')
    env = {**os.environ, 'POLYROUTE_DATA': str(toy/'data'), 'POLYROUTE_OUTPUTS': str(toy/'out')}
    subprocess.run([sys.executable, ROOT/'tools'/'build_docs.py', '--live', root/'some'/'path'/'toy'], env=env, check=True, capture_output=True)
    shutil.copytree(root/'some'/'path'/'toy', root/'some'/'path'/'real')
    shutil.rmtree(root/'some'/'path'/'real'/'live')
    with pytest.MonkeyPatch.context() as m:
        m.setattr(site, 'suite_board', lambda suite, name, root=None: board_of(name, suite))
        write_pages_data(root/'some'/'path'/'real'/'live', suites=('polyroute',))
    server = ThreadingHTTPServer(('127.0.0.1', 0), partial(Quiet, directory=root))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{server.server_port}/some/path'
    server.shutdown()

@pytest.fixture(scope='module')
def tab(browser):
    "One tab for all tests; what it complains of is collected."
    page = browser.new_context(viewport=dict(width=1280, height=900), reduced_motion='reduce').new_page()
    page.set_default_timeout(15000)
    page.faults = []
    page.on('console', lambda m: page.faults.append(m.text) if m.type in ('error', 'warning') else None)
    page.on('pageerror', lambda e: page.faults.append(str(e)))
    page.on('requestfailed', lambda r: None if r.url.endswith('favicon.svg') and r.failure == 'net::ERR_ABORTED' else page.faults.append(f'{r.failure} {r.url}'))    # the icon of a page that was left at once
    page.on('response', lambda r: page.faults.append(f'{r.status} {r.url}') if r.status >= 400 else None)
    page.on('request', lambda r: None if r.url.startswith(('http://127.0.0.1:', 'data:', 'blob:')) else page.faults.append(f'leaves the site: {r.url}'))
    page.on('dialog', lambda d: (page.faults.append(f'dialog: {d.message}'), d.dismiss()))
    return page

@pytest.fixture(params=['toy', 'real'])
def live(request, tab, address, toy, monkeypatch):
    "A function that opens a page of either site; the library reads the same data. No test may leave a console message or a failed request."
    if request.param == 'toy':
        monkeypatch.setenv('POLYROUTE_DATA', str(toy/'data'))
        monkeypatch.setenv('POLYROUTE_OUTPUTS', str(toy/'out'))
    def open(page='board', **state):
        from urllib.parse import urlencode
        tab.goto(f'{address}/{request.param}/{page}.html?{urlencode(state)}')
        tab.wait_for_selector('.live-page[data-ready], .live-page [role=alert]')
        assert not tab.locator('[role=alert]').count(), tab.text_content('[role=alert]')
        return tab
    tab.faults.clear()
    open.kind = request.param
    yield open
    assert tab.faults == []

def only(kind): return pytest.mark.parametrize('live', [kind], indirect=True)

ROWS = """() => Object.fromEntries([...document.querySelectorAll('#table tr[data-slug]')].map(r => [r.dataset.slug,
  Object.fromEntries([...r.children].map(c => [c.classList[0], (c.querySelector('.value, .system') || c).textContent]))]))"""
SHOWN = {'Track': 'track', 'Rank in track': 'rank', 'Tier': 'tier', 'Places': 'places', 'Accuracy [95% CI]': 'accuracy', 'All seeds': 'seeds', 'Macro-F1': 'macro_f1', 'NLL': 'nll', 'ECE (noise)': 'ece'}

def test_statistics_equal_the_library(tab, address):
    tab.goto(f'{address}/toy/board.html')
    rng = random.Random(0)
    call = lambda f, cases: tab.evaluate("async ([f, cases]) => { const m = await import(new URL('assets/live/stats.js', location.href)); return cases.map(c => m[f](...c)); }", [f, cases])
    counts = [(k, n) for n in (1, 2, 30, 360, 5000) for k in sorted({0, 1, n//3, n//2, n - 1, n})]
    assert call('wilson', counts) == [list(metrics.wilson(*c)) for c in counts]
    pairs = [(b, c) for b in range(12) for c in range(12)] + [(rng.randrange(400), rng.randrange(400)) for _ in range(60)] + [(4000, 3800), (0, 2000)]
    assert np.allclose(call('mcnemar', pairs), [mcnemar_exact(*c) for c in pairs], rtol=1e-9, atol=1e-300)
    lists = [[rng.random()**4 for _ in range(rng.randrange(1, 30))] for _ in range(20)] + [[.01, .01, .04]]
    assert all(np.allclose(a, holm(np.array(b)), rtol=1e-14) for a, b in zip(call('holm', [[v] for v in lists]), lists))
    power = [(360, .1, .03, .01), (90, .2, .2, .05), (30, .05, .01, .01), (2000, .3, .05, .001), (5, 1, 1, .05), (12, 1, .5, .05)]
    assert np.allclose(call('mcnemarPower', power), [mcnemar_power(*c) for c in power], rtol=1e-8, atol=1e-12)
    least = [(360, .032, .01), (90, .1, .01), (255, .2, .05), (1200, .15, .01), (10, .1, .01), (60, 1, .01)]
    for a, c in zip(call('detectable', least), least):
        b = significance.detectable_difference_exact(*c)
        assert a is None and b != b or abs(a - b) < 3e-7
    values = [(k/n*100, d) for n in (7, 16, 32, 60, 240, 360, 1000) for k in range(n + 1) for d in (0, 1, 2, 3)] + [(-x/8, d) for x in range(20) for d in (0, 1, 2)]
    assert call('fixed', values) == [f'{x:.{d}f}' for x, d in values]
    hits = [(np.random.default_rng(s).random((60, 6)) < np.linspace(.4, .95, 6)).astype(int) for s in range(10)]
    found = tab.evaluate("async cases => { const m = await import(new URL('assets/live/stats.js', location.href)); return cases.map(h => m.tiers(h, m.allPairs(h), .01)); }", [h.T.tolist() for h in hits])
    assert found == [tiers(h).tolist() for h in hits]

def test_every_number_of_every_board(live):
    "Each system, each accuracy split, each column: the text of the page is the library's."
    for name in [n for n in split_names() if n != 'boundary']:
        tab, b = live(split=name), board_of(name)
        rows, want = tab.evaluate(ROWS), main_table(b)
        assert list(rows) == b.slugs and len(rows) > 4
        for slug, w in zip(b.slugs, want): assert {k: rows[slug][c] for k, c in SHOWN.items() if k in w} == {k: str(v) for k, v in w.items() if k in SHOWN}, (name, slug)
        assert f'{len(b.data)} items' in tab.text_content('#facts')
        assert tab.evaluate("Object.fromEntries([...document.querySelectorAll('.absent li')].map(e => [e.dataset.slug, e.textContent.split(': ').slice(1).join(': ')]))") == b.absent

def test_every_number_of_the_soft_board(live):
    tab, b = live(split='boundary'), board_of('boundary')
    rows = tab.evaluate(ROWS)
    assert list(rows) == b.slugs
    for slug, r in zip(b.slugs, board_json(b)['systems']):
        score = 'unavailable' if r['loss'] is None else f"{number(r['log_score'])} [{number(r['lo'])}–{number(r['hi'])}]"
        assert (rows[slug]['score'], rows[slug]['expected']) == (score, percent(r['expected_accuracy']))
    first, second = b.slugs[:2]
    tab = live(split='boundary', a=second, b=first)
    e = bootstrap_difference(*(soft_losses(b.predictions[n].probs, b.data.soft) for n in (1, 0)), clusters=b.data.clusters)
    sign = lambda x: f'{x:+.3f}'
    assert tab.text_content('#difference') == f'{sign(e.value)} [{sign(e.lo)}, {sign(e.hi)}]'

@pytest.mark.parametrize('live, suite, name', [('toy', 'romcom', 'talk.id-en'), ('real', 'polyroute', 'ml_hard')], indirect=['live'])
def test_every_filter_of_items(live, suite, name):
    "Accuracy, interval, tier and rank of the chosen items, for every value of every filter."
    b = board_of(name, suite)
    tab = live(suite=suite, split=name)
    found = tab.evaluate("""rows => { const out = {}, s = document.getElementById('items');
      for (const v of [...s.options].map(o => o.value).filter(v => v)) { const e = document.getElementById('items'); e.value = v; e.dispatchEvent(new Event('change')); out[v] = [document.getElementById('facts').textContent, (0, eval)(rows)()]; }
      return out; }""", f'({ROWS})')
    of = {f"{f['key']}:{v}": unpacked(f['of'], 8) == n for f in filters(b.data) for n, v in enumerate(f['values'])}
    assert set(found) == set(of) and len(of) > 8
    for v, mask in of.items():
        facts, rows = found[v]
        hit, n = b.hit[mask], int(mask.sum())
        assert f'{n} item{"" if n == 1 else "s"} from {len(set(b.data.clusters[mask]))} source' in facts
        for j, (c, t) in enumerate(zip(b.cards, tiers(hit))):
            k = int(hit[:, j].sum())
            rank = '–' if c.track == 'ref' else str(1 + sum(o.track == c.track and hit[:, i].sum() > k for i, o in enumerate(b.cards)))
            assert (rows[c.slug]['accuracy'], rows[c.slug]['tier'], rows[c.slug]['rank']) == (percent(k/n, *metrics.wilson(k, n)), str(t), rank), (v, c.slug)
            assert 'nll' not in rows[c.slug]

@only('toy')
def test_sorting(live):
    tab, b = live(), board_of('ml_test')
    rows = {r['slug']: r for r in b.rows()}
    keys = {'system': lambda r: r['name'].lower(), 'track': lambda r: r['track'], 'rank': lambda r: r['rank'], 'tier': lambda r: r['tier'], 'places': lambda r: r['rank_lo'], 'accuracy': lambda r: r['accuracy'], 'macro_f1': lambda r: r['macro_f1'], 'nll': lambda r: r['nll'], 'ece': lambda r: r['ece']}
    for key, f in keys.items():
        seen = {}
        for _ in range(2):
            tab.click(f'th.{key} button')
            order = [f(rows[s]) for s in tab.evaluate(ROWS)]
            there = [x for x in order if x is not None and x == x]
            down = tab.get_attribute(f'th.{key}', 'aria-sort') == 'descending'
            assert there == sorted(there, reverse=down) and order[:len(there)] == there, key      # what is missing comes last both ways
            assert tab.locator('th[aria-sort]').count() == 1
            seen[down] = order
        assert len(seen) == 2
    assert 'sort=' in tab.url
    tab.reload(); tab.wait_for_selector('.live-page[data-ready]')
    assert [keys['ece'](rows[s]) for s in tab.evaluate(ROWS)] == pytest.approx(order, nan_ok=True)      # the address keeps it

@only('toy')
def test_tracks_and_names(live):
    tab, b = live(), board_of('ml_test')
    tab.uncheck('.tracks input[value=ref]'); tab.uncheck('.tracks input[value=A]')
    want = {c.slug for c in b.cards if c.track in 'BC'}
    rows = tab.evaluate(ROWS)
    assert set(rows) == want and 'tracks=B%2CC' in tab.url
    whole = {s: r for s, r in zip(b.slugs, main_table(b))}
    assert all(rows[s]['tier'] == str(whole[s]['Tier']) for s in want)      # of the whole board
    tab.fill('#name', 'SEC')
    assert set(tab.evaluate(ROWS)) == {'second'}
    tab.fill('#name', 'nobody')
    assert tab.evaluate(ROWS) == {} and 'No system fits' in tab.text_content('#table')

PAIR = """() => Object.fromEntries(['both', 'only-first', 'only-second', 'neither', 'accuracies', 'difference', 'p', 'holm', 'detectable', 'verdict'].map(i => [i, document.getElementById(i).textContent]))"""

def test_comparisons(live):
    "Pairs in both orders: the paired table, the interval, p, and the smallest detectable difference."
    tab, b = live(), board_of('ml_test')
    pairs = list(combinations(range(len(b.cards)), 2))
    chosen = random.Random(1).sample(pairs, min(len(pairs), 7)) + [(0, len(b.cards) - 1)]
    for n, (i, j) in enumerate(chosen):
        if n % 2: i, j = j, i
        tab.click('#ticked button') if tab.is_visible('#ticked button') else None
        for k in (i, j): tab.check(f'tr[data-slug={b.slugs[k]}] .pick input')
        c = compare(b.predictions[i], b.predictions[j])
        r, got = comparison_row(c), tab.evaluate(PAIR)
        assert f"{got['only-first']} / {got['only-second']}" == r['Only first / only second right']
        both = int((b.hit[:, i] & b.hit[:, j]).sum())
        assert (int(got['both']), int(got['neither'])) == (both, len(b.data) - both - c.wins_first - c.wins_second)
        assert got['difference'].replace(' points', '') == r['Difference [95% CI]'] and got['p'] == r['p (exact McNemar)']
        assert got['accuracies'] == f"{r[c.first]} and {r[c.second]}"
        assert got['detectable'] == (f"{r['Resolvable (points)']} points" if c.detectable == c.detectable else 'none: even a clean sweep would not be significant')
        q = b.pairs.p_holm[i, j]
        assert got['holm'] == ('< 0.001' if q < .001 else f'{q:.3f}')
        assert got['verdict'].startswith('Not separated') == (c.verdict == 'not separated')
        if c.p < .01: assert ('but not after' in got['verdict']) == (q >= .01)

@only('real')
def test_comparison_of_some_items(live):
    b = board_of('ml_hard')
    where = b.data.groups('script_group')['Indic']
    tab = live(split='ml_hard', items='script_group:Indic', a=b.slugs[0], b=b.slugs[-1])
    c, got = compare(b.predictions[0].select(where), b.predictions[-1].select(where)), tab.evaluate(PAIR)
    assert (int(got['only-first']), int(got['only-second']), got['difference']) == (c.wins_first, c.wins_second, f'{100*c.difference.value:+.1f} points')
    assert got['p'] == comparison_row(c)['p (exact McNemar)'] and got['detectable'] == f'{100*c.detectable:.1f} points'

@only('toy')
def test_ticking(live):
    tab = live()
    box = lambda s: f'tr[data-slug={s}] .pick input'
    tab.check(box('best')); tab.check(box('low')); tab.check(box('middle'))      # the oldest goes
    assert tab.evaluate("[...document.querySelectorAll('.pick input:checked')].map(e => e.closest('tr').dataset.slug)") == ['middle', 'low'] and 'a=low&b=middle' in tab.url
    tab.select_option('#items', 'language:de')
    assert tab.is_visible('#comparison h2')
    tab.uncheck(box('low'))
    assert not tab.locator('#comparison h2').count() and 'tick one more' in tab.text_content('#ticked')

@only('toy')
def test_a_number_leads_to_its_items(live):
    tab, b = live(items='language:de', a='best', b='low'), board_of('ml_test')
    n = int(tab.text_content('#only-first'))
    tab.click('#only-first a')
    tab.wait_for_selector('#live-explorer[data-ready]')
    a, c, de = b.slugs.index('best'), b.slugs.index('low'), b.data.field('language') == 'de'
    want = b.data.ids[de & b.hit[:, a] & ~b.hit[:, c]]
    assert tab.evaluate("[...document.querySelectorAll('article')].map(e => e.dataset.id)") == want.tolist() and len(want) == n > 0

IDS = "() => [...document.querySelectorAll('article')].map(e => e.dataset.id)"

def all_items(tab):
    while tab.is_visible('#more button'): tab.click('#more button')
    return tab.evaluate(IDS)

@pytest.mark.parametrize('live', ['real'], indirect=True)
def test_explorer_filters(live):
    b = board_of('ml_hard')
    tab, p = live('explorer', split='ml_hard'), b.predictions[2]
    assert tab.text_content('#found') == f'{len(b.data)} of {len(b.data)} items.'
    tab.select_option('#system', p.system); tab.select_option('#outcome', 'wrong')
    assert all_items(tab) == b.data.ids[~p.hit].tolist()
    tab.fill('#from', '60')
    assert all_items(tab) == b.data.ids[~p.hit & (np.rint(p.conf*10000) >= 6000)].tolist()
    tab.select_option('#sort', 'sure')
    shown = all_items(tab)
    conf = dict(zip(b.data.ids, p.conf))
    assert all(conf[x] >= conf[y] - 1e-4 for x, y in zip(shown, shown[1:]))
    tab.click('#reset')
    tab.select_option('[id="in.language"]', 'ar'); tab.select_option('[id="in.gold"]', 'billing')
    assert all_items(tab) == b.data.ids[(b.data.field('language') == 'ar') & (b.data.field('gold') == 'billing')].tolist()
    assert tab.evaluate("[...document.querySelectorAll('article .text')].every(e => getComputedStyle(e).direction === 'rtl' && e.lang === 'ar' && e.dir === 'auto')")
    tab.click('#reset')
    tab.fill('#wrong', str(len(b.cards)//2))
    assert tab.text_content('#found').split()[0] == str(int(((~b.hit).sum(1) >= len(b.cards)//2).sum()))
    tab.click('article >> nth=0 >> summary')
    tab.wait_for_selector('article:first-child tr[data-slug]')     # filled when the browser reports it open
    rows = tab.evaluate("Object.fromEntries([...document.querySelectorAll('article:first-child tr[data-slug]')].map(r => [r.dataset.slug, r.lastChild.textContent]))")
    i = int(np.flatnonzero((~b.hit).sum(1) >= len(b.cards)//2)[0])
    assert rows == {c.slug: '✓ right' if b.hit[i, j] else '✗ wrong' for j, c in enumerate(b.cards)}

@only('toy')
def test_hostile_texts_are_only_texts(live):
    tab, data = live('explorer'), items.load('ml_test')
    all_items(tab)
    shown = tab.evaluate("Object.fromEntries([...document.querySelectorAll('article')].map(e => [e.dataset.id, e.querySelector('.text').textContent]))")
    turned = data.ids[1]
    assert {k: v for k, v in shown.items() if k != turned} == {i.id: i.state for i in data if i.id != turned}
    assert shown[turned] == data[1].state.replace('\u202E', 'RLO').replace('\u202C', 'PDF').replace('\u2067', 'RLI').replace('\u2069', 'PDI')
    for page in ('explorer', 'board'):
        if page == 'board': tab = live(a='middle', b='best')
        else: tab.select_option('#system', 'middle'); tab.click('article >> nth=0 >> summary')
        assert tab.evaluate("window.hacked === undefined && !document.querySelector('main script:not([src]), main img, main b:not(.bar b), main i:not(.bar i, .bi)')")
        assert not any(c in tab.evaluate("document.querySelector('.live-page').textContent") for c in '\u202A\u202B\u202C\u202D\u202E\u2066\u2067\u2068\u2069')
    assert 'B<b>old</b>' in tab.text_content('tr[data-slug=middle] .system') and 'B<b>old</b>' in tab.text_content('#comparison h2')
    tab = live('explorer', suite='romcom')
    all_items(tab)
    assert 'Which colour <i>is</i> it?' in tab.text_content('#list') and 'as <b>blood</b>' in tab.text_content('#list') and not tab.locator('main b, main i:not(.bi)').count()

@only('toy')
def test_direction_of_texts(live):
    tab, data = live('explorer'), items.load('ml_test')
    tab.fill('#text', 'שלום')
    assert tab.evaluate(IDS) == [data.ids[2]]
    tab = live('explorer', suite='human')
    assert 'stays with its publisher' in tab.text_content('article >> nth=0') and not tab.locator('article .text').count()

@only('toy')
def test_tabs_of_suites(live):
    tab = live()
    tab.click('[aria-label=Suite] button:has-text("Controlled")')
    tab.wait_for_selector('[data-ready="romcom/talk.id-en"]')
    assert 'items of one source are not independent' in tab.text_content('#facts').lower() and '120 items from 40 sources' in tab.text_content('#facts')
    b = board_of('talk.id-en', 'romcom')
    assert {s: r['accuracy'] for s, r in tab.evaluate(ROWS).items()} == {s: r['Accuracy [95% CI]'] for s, r in zip(b.slugs, main_table(b))}
    tab.check('tr[data-slug=best] .pick input'); tab.check('tr[data-slug=low] .pick input')
    c = compare(b.predictions[b.slugs.index('best')], b.predictions[b.slugs.index('low')])
    assert tab.text_content('#difference').replace(' points', '') == comparison_row(c)['Difference [95% CI]']       # drawn by source
    assert tab.locator('[data-slug=departments]').text_content().endswith('n/a: knows departments only')

def test_nothing_overflows_on_a_phone(live):
    b = board_of('ml_test')
    try:
        for page, more in (('board', dict(a=b.slugs[0], b=b.slugs[1])), ('explorer', dict(system=b.slugs[0]))):
            for name in split_names()[:2] + ['boundary']:
                tab = live(page, split=name, **more)
                tab.set_viewport_size(dict(width=390, height=844))
                if page == 'explorer': tab.click('article >> nth=0 >> summary')
                assert tab.evaluate('document.documentElement.scrollWidth') <= 390, (page, name)
                assert tab.evaluate("[...document.querySelectorAll('.live-page .controls *, .live-page .item, #comparison > *')].every(e => e.getBoundingClientRect().right <= 390.5)"), (page, name)
                assert tab.evaluate("[...document.querySelectorAll('.live-page :is(button, select, input:not([type=checkbox]))')].filter(e => e.offsetParent).every(e => e.getBoundingClientRect().height >= 17)")
    finally: tab.set_viewport_size(dict(width=1280, height=900))

@pytest.fixture(scope='module')
def axe(tmp_path_factory):
    "The source of axe-core, from the npm registry."
    if not shutil.which('npm'): pytest.skip('axe-core comes from the npm registry, and there is no npm')
    d = tmp_path_factory.mktemp('axe')
    r = subprocess.run(['npm', 'pack', '--silent', '--prefer-offline', 'axe-core@4.14.1'], cwd=d, capture_output=True, text=True)
    if r.returncode: pytest.skip(f'axe-core could not be fetched from the npm registry: {r.stderr[-200:]}')
    shutil.unpack_archive(next(d.glob('*.tgz')), d)
    return (d/'package'/'axe.min.js').read_text(encoding='utf-8')

@only('toy')
@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_accessible(live, tab, axe, scheme):
    "axe-core finds nothing serious in either scheme, with a comparison and an item opened."
    tab.emulate_media(color_scheme=scheme)
    for page, state in (('board', dict(a='best', b='low')), ('board', dict(split='boundary')), ('explorer', dict(system='best', outcome='wrong')), ('explorer', dict(suite='romcom'))):
        tab = live(page, **state)
        if page == 'explorer': tab.click('article >> nth=0 >> summary')
        tab.wait_for_function(f"document.documentElement.classList.contains('quarto-dark') === {str(scheme == 'dark').lower()}")
        tab.evaluate(axe)
        found = tab.evaluate("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.filter(v => v.impact === 'serious' || v.impact === 'critical').map(v => [v.id, v.nodes[0].html, v.nodes[0].failureSummary]))")
        assert found == [], page
    tab.emulate_media(color_scheme='light')
