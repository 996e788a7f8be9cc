"The judges' form in a headless browser - filled, saved, loaded again, imported - and the importer on random files."
import json, os, re, shutil
from pathlib import Path
import pytest
from hypothesis import given, settings, strategies as st
from polyroute.items import DEPARTMENT, DataError, Dataset, Item, load, write_jsonl
from polyroute.judgements import FORM, LANGUAGE_ANSWERS, NATURALNESS, UNCLEAR, Answer, embedded_json, fidelity, form_page, in_language, read_answer, read_judgements, shuffled, write_form

NASTY = '</script><img src=x onerror="document.title=1">\u202eevil\u202c & \u2028 <b>\U0001f469\u200d\U0001f4bb</b>'
ITEMS = [Item('n1', NASTY, DEPARTMENT, 'billing', meta={'language': 'ar', 'misleads': 'secret'}), Item('n2', 'وصلتني فاتورة من 2 GB 50.00 مرتين', DEPARTMENT, 'billing', meta={'language': 'ar'}),
         Item('n3', 'التطبيق لا يفتح', DEPARTMENT, 'technical', meta={'language': 'ar'})]
TOY = Dataset('toy', ITEMS, sha256='0'*64)
LOAD = {'toy': TOY}.__getitem__

@given(st.recursive(st.text() | st.integers() | st.none(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_embedded_json_is_the_same_value_and_cannot_leave_its_element(value):
    text = embedded_json(value)
    assert json.loads(text) == value
    assert not re.search('[<>&\u2028\u2029\u202a-\u202e\u2066-\u2069]', text)

@pytest.mark.parametrize('split', ['ml_test', 'mix_test', 'en_test', 'ml_hard', 'boundary'])
def test_forms_hold_all_texts_and_no_label(split):
    data = load(split)
    for code in [*data.groups('language'), *data.groups('variety')]:
        body = json.loads(re.search('<script type="application/json" id="data">(.*?)</script>', form_page(data, code), re.S)[1])
        mine = in_language(data, code)
        assert {i['id']: i['text'] for i in body['items']} == {i.id: i.state for i in mine}
        assert all(set(i) == {'id', 'text'} for i in body['items'])
        assert [i['id'] for i in body['items']] == list(shuffled(mine).ids)

def test_the_form_is_the_same_at_every_writing(tmp_path):
    a, b = write_form('ml_test', 'ta', tmp_path), write_form('ml_test', 'ta', tmp_path/'other.html')
    assert a.name == 'polyroute-ml_test-ta.html' and a.read_bytes() == b.read_bytes()

answers = st.fixed_dictionaries(dict(language=st.sampled_from(list(LANGUAGE_ANSWERS)), naturalness=st.sampled_from(list(NATURALNESS)), label=st.sampled_from([*DEPARTMENT.options, UNCLEAR])),
                                optional=dict(note=st.text(st.characters(exclude_categories=['Cs']))))

@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(['n1', 'n2', 'n3']), answers, min_size=1), st.text(st.characters(exclude_categories=['Cs']), min_size=1).filter(str.strip))
def test_what_is_saved_is_read(tmp_path_factory, given_answers, who):
    head = dict(schema=1, form=FORM, split='toy', language='ar', data_sha256='0'*64, annotator=who, native='native')
    f = write_jsonl(tmp_path_factory.mktemp('j')/'x.jsonl', [head, *(dict(id=i, **a) for i, a in given_answers.items())])
    j, = read_judgements([f], LOAD)
    assert j.answers == {i: Answer(a['language'], a['naturalness'], a['label'], a.get('note', '')) for i, a in given_answers.items()}
    row, = fidelity([j])
    assert row['items'] == len(given_answers) and row['naturalness'] == pytest.approx(sum(a['naturalness'] for a in given_answers.values())/len(given_answers))

def test_the_command_says_how_far_annotators_agree(tmp_path):
    from click.testing import CliRunner
    from polyroute.cli import main
    data = in_language(load('ml_test'), 'ta')
    files = [write_jsonl(tmp_path/f'{who}.jsonl', [dict(schema=1, form=FORM, split='ml_test', language='ta', data_sha256=data.sha256, annotator=who, native='native'),
                                                   *(dict(id=i.id, language='yes', naturalness=3, label=i.gold if n >= wrong else next(o for o in i.question.options if o != i.gold)) for n, i in enumerate(data))]) for who, wrong in (('A', 0), ('B', 2))]
    r = CliRunner().invoke(main, ['audit', 'import', *map(str, files), '--json'])
    assert r.exit_code == 0, r.output
    found = json.loads(r.output)
    assert [x['items'] for x in found['fidelity']] == [len(data)]
    assert [(x['a'], x['b'], x['items'], x['agree']) for x in found['agreement']] == [('A', 'B', len(data), len(data) - 2)]
    assert 'kappa' in CliRunner().invoke(main, ['audit', 'import', *map(str, files)]).output

@given(st.dictionaries(st.sampled_from(['language', 'naturalness', 'label', 'note', 'id', 'x']), st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()) | st.dictionaries(st.text(), st.text())))
def test_a_line_is_read_or_refused_and_nothing_else(row):
    try: a = read_answer(row, DEPARTMENT.options)
    except ValueError: return
    assert a.language in LANGUAGE_ANSWERS and a.naturalness in NATURALNESS and a.label in (*DEPARTMENT.options, UNCLEAR)

# ---------------------------------------------------------------- in a browser

CHROMIUM = os.environ.get('POLYROUTE_CHROMIUM') or shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')

@pytest.fixture(scope='module')
def browser():
    api = pytest.importorskip('playwright.sync_api', reason='the package playwright is not installed (pip install playwright)')
    if not CHROMIUM: pytest.skip('no chromium found (apt-get install chromium, or set POLYROUTE_CHROMIUM)')
    with api.sync_playwright() as p:
        b = p.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox', '--disable-gpu'])
        yield b
        b.close()

@pytest.fixture
def page(browser, tmp_path):
    context = browser.new_context(accept_downloads=True, offline=True, viewport=dict(width=390, height=800))
    page = context.new_page()
    page.asked, page.faults = [], []
    page.on('request', lambda r: page.asked.append(r.url))
    page.on('pageerror', lambda e: page.faults.append(str(e)))
    page.on('console', lambda m: page.faults.append(m.text) if m.type == 'error' else None)
    page.goto(write_form(TOY, 'ar', tmp_path).as_uri())
    yield page
    assert page.faults == []
    assert [u for u in page.asked if not u.startswith(('file:', 'blob:'))] == []
    context.close()

def tick(page, name, value): page.locator(f'input[name="{name}"][value="{value}"]').check()

def fill(page, language='yes', naturalness=4, label='billing', note=''):
    tick(page, 'language', language); tick(page, 'naturalness', naturalness); tick(page, 'label', label)
    if note: page.fill('#note', note)

def save(page, path):
    with page.expect_download() as d: page.click('#save')
    d.value.save_as(path)
    return d.value.suggested_filename

def test_filled_saved_and_imported(page, tmp_path):
    order = list(shuffled(TOY).ids)
    page.click('#save')
    assert 'name or pseudonym' in page.inner_text('#status') and 'name or pseudonym' in page.inner_text('#lacks')
    page.fill('#annotator', 'ليلى 7'); page.select_option('#native', 'native')
    page.click('#save')
    assert 'No message is complete' in page.inner_text('#status')
    fill(page, 'yes', 5, 'billing', 'جيد \u202e & <b>'); page.click('#next')
    fill(page, 'partly', 2, UNCLEAR); page.click('#next')
    tick(page, 'language', 'no')                                   # the third stays incomplete
    name = save(page, f := tmp_path/'laila.jsonl')
    assert name == 'polyroute-toy-ar-ليلى-7.jsonl'
    assert '1 are not complete' in page.inner_text('#status')
    j, = read_judgements([f], LOAD)
    assert (j.annotator, j.native, j.language) == ('ليلى 7', 'native', 'ar')
    assert j.answers == {order[0]: Answer('yes', 5, 'billing', 'جيد \u202e & <b>'), order[1]: Answer('partly', 2, UNCLEAR, '')}

def test_progress_survives_a_reload_and_a_file_goes_on_elsewhere(page, browser, tmp_path):
    page.fill('#annotator', 'B'); page.select_option('#native', 'fluent'); fill(page, note='x')
    page.reload()
    assert page.inner_text('#which') == 'Message 2 of 3' and page.input_value('#annotator') == 'B'     # at the first open message
    page.click('#back')
    assert page.is_checked('input[name="naturalness"][value="4"]') and page.input_value('#note') == 'x'
    save(page, f := tmp_path/'b.jsonl')
    other = browser.new_context().new_page()
    other.goto((tmp_path/'polyroute-toy-ar.html').as_uri())
    assert other.input_value('#annotator') == ''
    other.set_input_files('#file', f)
    other.wait_for_function("document.getElementById('status').textContent.startsWith('Read 1')")
    assert other.input_value('#annotator') == 'B' and other.is_checked('input[name="label"][value="billing"]')
    (bad := tmp_path/'bad.jsonl').write_text(f.read_text().replace('0'*64, '1'*64))
    other.set_input_files('#file', bad)
    other.wait_for_function("document.getElementById('status').textContent.includes('cannot be read')")
    other.context.close()

def test_texts_stay_texts_and_run_their_own_way(page):
    for n in range(3):
        i = shuffled(TOY)[n]
        assert page.evaluate("document.getElementById('text').textContent") == i.state
        assert page.evaluate("document.getElementById('text').childElementCount") == 0
        assert (page.inner_text('#marks') != '') == (i.id == 'n1')
        if i.id != 'n1': assert page.evaluate("getComputedStyle(document.getElementById('text')).direction") == 'rtl'
        assert page.get_attribute('#text', 'lang') == 'ar'
        page.click('#next')
    assert page.title().startswith('PolyRoute')

def test_the_keyboard_is_enough(page, tmp_path):
    page.focus('#annotator'); page.keyboard.type('Kay'); page.keyboard.press('Tab')
    page.keyboard.type('it is a first')
    for n in range(3):
        page.focus('#which')
        for steps in (0, 3, 1):                                    # yes; 4; technical
            page.keyboard.press('Tab'); page.keyboard.press('Space')
            for _ in range(steps): page.keyboard.press('ArrowRight')
        page.keyboard.press('Enter')
    assert page.evaluate("document.activeElement.id") == 'save'
    with page.expect_download() as d: page.keyboard.press('Enter')
    d.value.save_as(f := tmp_path/'k.jsonl')
    j, = read_judgements([f], LOAD)
    assert set(j.answers.values()) == {Answer('yes', 4, 'technical', '')} and len(j.answers) == 3

@pytest.mark.parametrize('width', [320, 390, 1200])
def test_it_fits_every_width(page, width):
    page.set_viewport_size(dict(width=width, height=800))
    assert page.evaluate('document.documentElement.scrollWidth') <= width
    assert page.evaluate("[...document.querySelectorAll('.choices label')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.outerHTML)") == []
    small = page.evaluate("[...document.querySelectorAll('button, .choices label, select, #annotator, #note')].filter(e => e.getBoundingClientRect().height < 43.5).map(e => e.outerHTML)")
    assert small == []

@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_contrast_is_enough(page, scheme):
    page.emulate_media(color_scheme=scheme)
    ratio = page.evaluate("""() => { const lum = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
      const back = e => { while (e) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(c)) return c; e = e.parentElement; } return 'rgb(255, 255, 255)'; };
      return Math.min(...[...document.querySelectorAll('p, legend, label, small, .choices span, blockquote, button:enabled, h1, h2')].map(e => { const [a, b] = [lum(getComputedStyle(e).color), lum(back(e))].sort((x, y) => y - x); return (a + .05) / (b + .05); })); }""")
    assert ratio >= 4.5
