"The romcom suite's data, its measures against brute-force counts, its study, and loaders for the public sources."
import html.parser, json, os, re, shutil
from collections import Counter
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score
from conftest import fast, few, tree
from polyroute import codemixed, romcom as r
from polyroute.items import DataError, data_dir, read_items, sha256, write_atomic, write_jsonl

ALL = r.rows()
MIXED = [x for x in ALL if x.level]

# data

def test_the_suite_is_complete():
    assert len(ALL) == 140*13 and len({x.id for x in ALL}) == len(ALL)
    assert Counter((x.task, x.language, x.level) for x in MIXED) == {(t, c, l): 20 for t in r.TASKS for c in r.LANGUAGES for l in r.LEVELS}
    assert all(x.base.level == 0 and x.base.id == x.cluster and x.base.task == x.task for x in MIXED)

def test_rows_survive_their_file():
    raw = {x.id: x for x in r.read_raw()}
    assert set(raw) == {x.id for x in ALL}
    for x in ALL:
        a, b = dict(raw[x.id].__dict__), dict(x.__dict__)
        assert (a.pop('origin') and raw[x.id].base.id) == (b.pop('origin') and x.base.id)
        assert a == b

def test_files_are_byte_stable_and_items(tmp_path):
    r.build(out=tmp_path)
    for p in sorted(tmp_path.glob('*.jsonl')): assert sha256(p) == sha256(data_dir()/'romcom'/p.name), p.name
    for name in (*r.TYPED, *r.OWN):
        data = read_items(tmp_path/f'{name}.jsonl', name)
        assert len(data) == 260 and len(set(data.clusters)) == 20 and (data.gold >= 0).all()
        assert not any(i.question.descriptions != ('',)*len(i.question.options) for i in data)

def test_primary_question_is_constant_and_own_varies():
    for t in r.TYPED:
        if r.TASKS[t].switched == 'explanation': continue
        assert len(r.load(t).by_question()) == 1
        own = r.load(t, own=True)
        assert [i.state for i in own] == [i.state for i in r.load(t)]
        by = {i.id: i for i in own}
        assert all(by[x.id].question.instructions == x.instruction for x in r.rows(t))
    assert {i.meta['level'] for i in r.load('toxicity', 'ta', 75)} == {75}

def test_toxic_prompts_never_change():
    assert all(x.input == x.base.input for x in r.rows('toxicity'))

@pytest.mark.parametrize('call, words', [(lambda: r.load('math'), 'no options'), (lambda: r.load('toxicity', own=True), 'one condition'), (lambda: r.rows('nope'), 'no task'), (lambda: r.rows(level=30), 'no level'), (lambda: r.rows(language='xx'), 'no language')])
def test_wrong_names_are_told(call, words):
    with pytest.raises(DataError, match=words): call()

def raw_copy(tmp_path, change):
    "A raw folder with one base and its mixed rows, changed by a function of (file stem, row)."
    src = data_dir()/'raw'/'romcom'
    for stem in ('base', *r.LANGUAGES):
        rows = [json.loads(l) for l in (src/f'{stem}.jsonl').read_text(encoding='utf-8').split('\n') if l]
        rows = [row for row in rows if row['id'] in ('math-01', 'nli-02')]
        write_jsonl(tmp_path/f'{stem}.jsonl', [change(stem, row) or row for row in rows])
    return tmp_path

@pytest.mark.parametrize('change, words', [
    (lambda s, x: x.update(input={'question': x['input']['question'].replace('12', 'barah')}) if s == 'hi' and x['id'] == 'math-01' else None, "'12'"),
    (lambda s, x: x.update(answer='58') if s == 'bn' and x['id'] == 'math-01' else None, 'answer'),
    (lambda s, x: x['substitutions'].append(dict(source='Our', target='hamara', category='A')) if s == 'hi' and x.get('level') == 25 else None, 'not active at 25%'),
    (lambda s, x: x['substitutions'].append(dict(source='zebra', target='zebra', category='C')) if s == 'gu' else None, 'does not stand in the English'),
    (lambda s, x: x.update(label='maybe') if s == 'base' and x['id'] == 'nli-02' else None, "'maybe'"),
    (lambda s, x: x.update(level=30) if s == 'ta' else None, '30'),
    (lambda s, x: x.update(instruction=x['instruction'].replace('"neutral"', '"tatasth"')) if s == 'hi' and x['id'] == 'nli-02' else None, 'instruction'),
    (lambda s, x: x.pop('explanation') and None if s == 'ta' else None, "lacks 'explanation'"),
    (lambda s, x: x.update(id='nli-99') if s == 'ta' and x['id'] == 'nli-02' else None, 'no base')])
def test_a_broken_raw_row_is_told_with_file_and_line(tmp_path, change, words):
    with pytest.raises(DataError, match=words) as e: r.read_raw(raw_copy(tmp_path, change))
    assert e.value.path and e.value.line

# CAT-0

@fast
@given(st.lists(st.sampled_from(['12', '3.5', '<<1+2=3>>', '####', '#2', 'Step 3:', '"blue"', 'SAARC', 'word', 'Two', 'and']), min_size=1, max_size=12))
def test_protected_tokens_by_their_form(words):
    text = ' '.join(words)
    flags = dict.fromkeys(range(len(text.split())))
    got = r.protected(text)
    assert len(got) == len(text.split())
    for w, p in zip(text.split(), got):
        if re.search(r'[\d#"<]|SAARC', w) and w != 'Step': assert p, w
        if w in ('word', 'and'): assert not p, w

def test_names_and_days():
    assert r.protected('Ravi met Asha on Fridays and in May.', ['Ravi']) == [True, False, True, False, False, False, False, False]

# measures

def naive_replaced(text, mixed, log):
    "Brute force for logs whose sources are single words and that name every occurrence."
    words = [re.sub(r'\W', '', w).casefold() for w in text.split()]
    left = Counter(s.source.casefold() for s in log)
    out = []
    for w in words:
        out.append(left[w] > 0)
        left[w] -= left[w] > 0
    return out

VOCAB = ['bill', 'phone', 'water', 'and', 'slow', 'my']

@fast
@given(st.lists(st.sampled_from(VOCAB), min_size=1, max_size=15), st.sets(st.sampled_from(VOCAB)))
def test_replaced_share_against_a_count(words, switched):
    text, mixed = ' '.join(words), ' '.join(f'{w}x' if w in switched else w for w in words)
    every = [r.Substitution(w, f'{w}x', 'C') for w in words if w in switched]
    once = list(dict.fromkeys(every))
    assert r.replaced_tokens(text, mixed, every) == naive_replaced(text, mixed, every)
    assert r.replaced_tokens(text, mixed, once) == r.replaced_tokens(text, mixed, every)       # logged once or each time
    assert r.replaced_share(text, mixed, every) == pytest.approx(sum(w in switched for w in words)/len(words))

def test_replaced_share_of_nothing():
    assert np.isnan(r.replaced_share('12 34', '12 34', []))
    assert all(0 <= r.cmi_replaced(x) <= 1 for x in MIXED) and all(r.cmi_replaced(x) == 0 for x in ALL if not x.level)

def test_labels_cover_every_token_and_counts_agree():
    for x in MIXED[::17]:
        tags = r.token_labels(x)
        assert [t for t, _ in tags] == r.switched_text(x).split()
        assert {l for _, l in tags} <= {'en', x.language, 'other', 'mixed'}
        kept = [l for _, l in tags if l in ('en', x.language)]
        most = max(kept.count('en'), kept.count(x.language)) if kept else 0
        switches = sum(a != b for a, b in zip(kept, kept[1:]))
        n = len(kept)
        m, = r.measure_rows([x])
        assert m['tagged'] == pytest.approx((n - most)/n if n else 0)
        assert m['weighted'] == pytest.approx(((n - most) + switches)/(2*n) if n else 0)

def test_english_rows_are_english():
    for x in ALL:
        if not x.level: assert {l for _, l in r.token_labels(x)} <= {'en', 'other'}

MEASURED = r.measure_rows(MIXED)

def test_levels_are_distinct_everywhere():
    assert r.indistinct(MEASURED) == []
    means = {(s['task'], s['language'], s['level']): s['mean'] for s in r.summary(MEASURED, ('task', 'language', 'level'))}
    assert len(means) == 7*4*3 and all(means[t, c, 25] < means[t, c, 50] < means[t, c, 75] for t in r.TASKS for c in r.LANGUAGES)

def test_indistinct_levels_are_found():
    flat = [m | {'replaced': .3} if m['task'] == 'nli' and m['language'] == 'hi' else m for m in MEASURED]
    assert [x[:2] for x in r.indistinct(flat)] == [('nli', 'hi')]

@few
@given(st.lists(st.integers(-9, 9), min_size=15, max_size=40))      # with ties and zeros; scipy permutes shorter lists, which is slow
@example([3, -1, 2])
@example([0, 0])
def test_wilcoxon_and_effects_against_their_libraries(d):
    d = np.array(d, dtype=float)
    assert r.wilcoxon(d) == (pytest.approx(stats.wilcoxon(d).pvalue) if d.any() else 1.)
    if d.any():
        kept = d[d != 0]
        ranks = stats.rankdata(abs(kept))
        assert r.rank_biserial(d) == pytest.approx((ranks*np.sign(kept)).sum()/ranks.sum())
    if len(d) > 1 and d.std() > 0: assert r.cohen_d(d) == pytest.approx(stats.ttest_1samp(d, 0).statistic/np.sqrt(len(d)))

def test_level_tests_pair_bases_and_correct():
    tests = r.level_tests(MEASURED, tasks=list(r.TASKS))
    assert len(tests) == 21 and all(t.pairs == 80 and t.clusters == 20 for t in tests)
    for t in tests[:3]:
        at = {(m['cluster'], m['language'], m['level']): m['replaced'] for m in MEASURED if m['task'] == t.task}
        d = [at[c, l, t.higher] - at[c, l, t.lower] for c, l, k in at if k == t.lower]
        assert t.p == pytest.approx(stats.wilcoxon(d).pvalue) and t.p_bonferroni == pytest.approx(min(1, 21*t.p)) and t.difference.value == pytest.approx(np.mean(d))

def test_shares_add_up():
    for level in (*r.LEVELS, None):
        for s in r.substitution_shares(ALL, level): assert sum(s[c] for c in r.CATEGORIES) == pytest.approx(1)
    total = r.substitution_shares(ALL)[-1]['substitutions']
    assert total == sum(len(x.substitutions) for x in ALL)

def test_chrf_is_sacrebleus():
    from sacrebleu import corpus_chrf
    cell = r.rows('sentiment', 'hi', 50)
    assert r.chrf(cell) == pytest.approx(corpus_chrf([x.input['review'] for x in cell], [[x.base.input['review'] for x in cell]]).score)
    assert np.isnan(r.chrf([]))

# the study

@fast
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=40))
def test_kappa_is_scikit_learns(pairs):
    a, b = zip(*pairs)
    k = r.kappa(a, b)
    if set(a) == set(b) and len(set(a)) == 1: assert np.isnan(k)
    else: assert k == pytest.approx(cohen_kappa_score(a, b))

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.ids, self.refs = [], [], []
    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.tags.append((tag, a))
        if 'id' in a: self.ids.append(a['id'])
        self.refs += (a.get('aria-labelledby') or '').split()

def test_the_form_is_self_contained_accessible_and_escaped():
    nasty = r.rows('sentiment', 'hi', 50)[0]
    nasty = r.Row(**{**nasty.__dict__, 'input': {'review': '<script>alert(1)</script> & </section>\u2028'}})
    page = r.study_page([nasty, *r.study('hi')])
    assert '<script>alert' not in page and '&lt;script&gt;' in page and 'http' not in page.replace('http-equiv', '')
    p = Page(); p.feed(page)
    assert not [a for t, a in p.tags if 'src' in a or t in ('link', 'img', 'iframe')]
    assert len(p.ids) == len(set(p.ids)) and set(p.refs) <= set(p.ids)
    assert sum(t == 'fieldset' for t, _ in p.tags) == 2*22 == sum(t == 'legend' for t, _ in p.tags)
    assert all(a.get('dir') == 'auto' and a.get('lang') in ('en', 'hi-Latn') for t, a in p.tags if t == 'blockquote')
    assert page.count('class="warn"') == sum(x.task == 'toxicity' and x.label == 'toxic' for x in r.study('hi'))

def test_the_sample_is_stratified_and_the_same_for_all():
    for c in r.LANGUAGES:
        s = r.study(c, 2)
        assert Counter((x.task, x.level) for x in s) == {(t, l): 2 for t in r.TASKS for l in r.LEVELS}
        assert r.study_digest(s) == r.study_digest(r.study(c, 2)) != r.study_digest(r.study(c, 2, seed=1))

def saved(path, sample, who, score=lambda n: 1 + n % 3, **head):
    return write_jsonl(path, [dict(form=r.STUDY, schema=1, language=sample[0].language, sample=r.study_digest(sample), annotator=who) | head] + [dict(id=x.id, naturalness=score(n), meaning=3) for n, x in enumerate(sample)])

def test_ratings_are_read_and_compared(tmp_path):
    s = r.study('gu')
    a, b = (r.read_ratings(saved(tmp_path/f'{w}.jsonl', s, w, f)) for w, f in (('a', lambda n: 1 + n % 3), ('b', lambda n: 1 + n//2 % 3)))
    row, = r.agreement([a, b])
    x, y = [1 + n % 3 for n in range(21)], [1 + n//2 % 3 for n in range(21)]
    assert row['texts'] == 21 and row['kappa'] == pytest.approx(cohen_kappa_score(x, y)) and row['mean'] == pytest.approx(np.mean([x, y]))
    assert sum(g['texts'] for g in r.agreement([a, b], by='level')) == 21
    assert r.agreement([a]) == []

@pytest.mark.parametrize('head, line, words', [({'form': 'x'}, None, 'header'), ({'schema': 9}, None, 'schema'), ({'language': 'xx'}, None, 'language'), ({'annotator': ' '}, None, 'annotator'),
                                               ({}, dict(id='nope', naturalness=1, meaning=1), 'no such text'), ({}, dict(id='FIRST', naturalness=1, meaning=1), 'twice'), ({}, dict(id='NEW', naturalness=4, meaning=1), 'naturalness'), ({}, dict(id='NEW', naturalness=True, meaning=1), 'naturalness')])
def test_faulty_ratings_are_told(tmp_path, head, line, words):
    s = r.study('hi')
    path = saved(tmp_path/'x.jsonl', s, 'a', **head)
    if line:
        line['id'] = {'FIRST': s[0].id, 'NEW': next(x.id for x in r.rows(language='hi') if x.id not in {y.id for y in s})}.get(line['id'], line['id'])
        path.write_text(path.read_text() + json.dumps(line) + '\n')
    with pytest.raises(DataError, match=words): r.read_ratings(path)

def test_different_samples_do_not_mix(tmp_path):
    a, b = (r.read_ratings(saved(tmp_path/f'{w}.jsonl', r.study('hi', seed=k), w)) for k, w in enumerate('ab'))
    with pytest.raises(DataError, match='different samples'): r.agreement([a, b])
    with pytest.raises(DataError, match='two files'): r.agreement([a, a])

# the form in a browser

CHROMIUM = os.environ.get('POLYROUTE_CHROMIUM') or shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')

def test_the_form_saves_what_the_importer_reads(tmp_path):
    api = pytest.importorskip('playwright.sync_api', reason='the package playwright is not installed (pip install playwright)')
    if not CHROMIUM: pytest.skip('no chromium found (apt-get install chromium, or set POLYROUTE_CHROMIUM)')
    sample = r.study('ta')
    with api.sync_playwright() as p:
        b = p.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox', '--disable-gpu'])
        page = b.new_context(accept_downloads=True, offline=True, viewport=dict(width=390, height=800)).new_page()
        found = []
        page.on('request', lambda q: found.append(q.url) if not q.url.startswith(('file:', 'blob:')) else None)
        page.on('pageerror', lambda e: found.append(str(e)))
        page.on('dialog', lambda d: d.accept())
        page.goto(r.write_study('ta', tmp_path).as_uri())
        page.click('#save')
        assert 'name or pseudonym' in page.inner_text('#status')
        page.fill('#annotator', 'நிலா 7')
        page.check('input[name="naturalness-0"][value="2"]'); page.check('input[name="meaning-0"][value="3"]'); page.check('input[name="skip-1"]')
        page.check('input[name="naturalness-2"][value="1"]')         # half an answer is none
        assert page.inner_text('#status') == '2 of 21 answered'
        assert page.evaluate('document.documentElement.scrollWidth') <= 390
        with page.expect_download() as d: page.click('#save')
        d.value.save_as(tmp_path/'saved.jsonl')
        b.close()
    got = r.read_ratings(tmp_path/'saved.jsonl')
    assert found == [] and got.annotator == 'நிலா 7' and got.scores == {sample[0].id: dict(naturalness=2, meaning=3)} and got.skipped == (sample[1].id,) and got.sample == r.study_digest(sample)

# the paper's public sources: small files of our own in their published forms

def superni(tmp_path, number, **body):
    return write_atomic(tmp_path/f'task{number}_x.json', json.dumps({'Definition': ['…'], 'Positive Examples': [], 'Negative Examples': [], 'Instances': []} | body))

def test_sources_in_their_published_forms(tmp_path):
    g, = r.read_source('gsm8k', write_jsonl(tmp_path/'g.jsonl', [dict(question='A pen costs 5. Two pens?', answer='2*5=<<2*5=10>>10\n#### 1,010')]))
    assert (g.task, g.answer, g.extra['steps']) == ('math', '1010', 1)
    pos, neg = r.read_source('superni', superni(tmp_path, 1153, **{'Positive Examples': [dict(input='broom : sweep. needle : ?', output='sew', explanation='used to')], 'Negative Examples': [dict(input='broom : sweep. spoon : ?', output=['lock'], explanation='not used to')]}))
    assert (pos.input, pos.label, neg.label, neg.extra['relation']) == ({'pair_a': 'broom : sweep', 'pair_b': 'needle : sew'}, 'correct', 'incorrect', 'affordance')
    d, = r.read_source('superni', superni(tmp_path, 168, Instances=[dict(id='i', input='Question: Did cats fly?, Answer:No, Fact1: no wings.', output=['Step1: What do cats have?, Step2: Is #1 wings?, Wikipedia page for step 1: Cat, not_definitive_answer: False, incorrect_answer: False'])]))
    assert (d.input['question'], d.answer) == ('Did cats fly?', ('Step 1: What do cats have?', 'Step 2: Is #1 wings?'))
    e, = r.read_source('superni', superni(tmp_path, 176, Instances=[dict(id='i', input='Which dogs bark?', output=['#1 return dogs \n#2 return #1 that bark'])]))
    f, = r.read_source('superni', superni(tmp_path, 184, Instances=[dict(id='i', input='#1 return dogs \n#2 return #1 that bark', output=['Which dogs bark?'])]))
    assert e.input == f.input and e.answer == f.answer == ('Step 1: return dogs', 'Step 2: return #1 that bark') and (e.extra['subtype'], f.extra['subtype']) == ('procedural', 'inverse')
    x, = r.read_source('xnli', write_atomic(tmp_path/'x.json', json.dumps([dict(premise='क', hypothesis='ख', label=2)])))
    assert (x.label, x.input) == ('contradiction', {'premise': 'क', 'hypothesis': 'ख'})
    s, = r.read_source('sentiment', write_jsonl(tmp_path/'s.json', [{'ENGLISH REVIEW': 'Good.', 'INDIC REVIEW': 'अच्छा।', 'LABEL': 'Positive', 'CATEGORY': 'Toys'}, {'ENGLISH REVIEW': 'x', 'INDIC REVIEW': 'x', 'LABEL': None}]))
    assert (s.label, s.input, s.translation) == ('positive', {'review': 'Good.'}, {'review': 'अच्छा।'})
    p = r.read_source('paraphrase', write_jsonl(tmp_path/'p.jsonl', [dict(english='It rains. ', sentence1='क', sentence2='ख', label=1)]))
    assert [q.label for q in p] == ['no', 'yes'] and p[0].input['sentence_1'] == 'It rains.'
    t, = r.read_source('toxic', write_jsonl(tmp_path/'t.jsonl', [dict(eng_Latn=[['bad?', 'no.']], hin_Deva=[['बुरा?', 'नहीं।']]), dict(eng_Latn=[], hin_Deva=None)]))
    assert (t.label, t.input, t.explanation) == ('toxic', {'prompt': 'bad?'}, 'no.')

def test_parquet_sources(tmp_path):
    pa = pytest.importorskip('pyarrow'); import pyarrow.parquet as pq
    pq.write_table(pa.Table.from_pylist([dict(eng_Latn=[['bad?', 'no.']], ben_Beng=[['খারাপ?', 'না।']])]), tmp_path/'t.parquet')
    assert r.read_toxic(tmp_path/'t.parquet', 'bn')[0].translation == {'prompt': 'খারাপ?'}

@pytest.mark.parametrize('name, row, words', [('gsm8k', dict(question='x', answer='no end'), '####'), ('gsm8k', dict(q='x'), "lacks 'question'"), ('xnli', dict(premise='a', hypothesis='b', label=7), '7'), ('sentiment', {'ENGLISH REVIEW': 'a', 'INDIC REVIEW': 'b', 'LABEL': 'Meh'}, 'Meh'), ('paraphrase', dict(english='a', sentence1='b', sentence2='c', label='yes'), "'yes'"), ('toxic', dict(x=1), 'hin_Deva')])
def test_faulty_sources_are_told(tmp_path, name, row, words):
    with pytest.raises(DataError, match=words): r.read_source(name, write_jsonl(tmp_path/'x.jsonl', [row]))

def test_unknown_sources_are_told(tmp_path):
    with pytest.raises(DataError, match='no source'): r.read_source('xquad', tmp_path)
    with pytest.raises(DataError, match='file name'): r.read_source('superni', superni(tmp_path, 999))
    with pytest.raises(DataError, match='A : B'): r.read_source('superni', superni(tmp_path, 1152, **{'Positive Examples': [dict(input='odd', output='x', explanation='y')]}))
