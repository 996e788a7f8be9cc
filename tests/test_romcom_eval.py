"Prompts, readers, measures and tests of the romanised code-mixing suite, against brute force and other libraries."
import itertools, json, math
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats
from conftest import Toy, fast, few
from polyroute import romcom, romcom_eval as e, significance
from polyroute.items import DataError, Item, Question, write_jsonl
from polyroute.predictions import Header, Predictions
from polyroute.responses import Failure, Responses, read_responses
from polyroute.romcom import LANGUAGES, LEVELS, TASKS, rows
from polyroute.systems import Card, UnsupportedQuestion
from polyroute.token_language import OTHER, fold_of

LEVEL = (0, *LEVELS)


def made(right, task='nli'):
    "Outcomes from right[base][language][level]."
    out = []
    for b, langs in enumerate(right):
        for l, levels in enumerate(langs):
            for k, r in enumerate(levels):
                if LEVEL[k] == 0 and l: continue
                out.append(e.Outcome(f'{task}-{b}-{l}-{k}', f'{task}-{b}', task, 'en' if not k else list(LANGUAGES)[l], LEVEL[k], bool(r)))
    return out


@pytest.fixture(autouse=True)
def no_chat_keys(monkeypatch): monkeypatch.delenv('OPENAI_API_KEY', raising=False)


# Prompts

@pytest.mark.parametrize('task', TASKS)
def test_prompts_have_four_parts_and_no_evaluated_demonstration(task):
    for c in e.conditions_of(task):
        asked = e.prompts(task, c)
        own, k = e.CONDITIONS[c]
        assert len({p.id for p in asked}) == len(asked) == 13*(20 - len(e.set_aside(task))*bool(k))
        scored = {p.fields['row'].cluster for p in asked}
        for p in asked[::17]:
            row, last = p.fields['row'], p.messages[-1]['content']
            assert last.split('\n\n') == list(e.prompt_parts(row, own))
            assert last.endswith(e.REGISTER) and row.state in last and e.output_form(task) in last
            assert (row.instruction if own or task == 'toxicity' else row.base.instruction) in last
            assert len(p.messages) == 1 + 2*k and len(p.fields['shots']) == k
            assert all((d.language, d.level) == (row.language, row.level) and d.cluster not in scored for d in p.fields['shots'])
            assert [m['content'] for m in p.messages if m['role'] == 'assistant'] == [e.write_answer(d) for d in p.fields['shots']]


@pytest.mark.parametrize('task', TASKS)
def test_demonstrations_cover_the_strata(task):
    strata = {e.stratum(r) for r in rows(task, 'en')}
    shown = {e.stratum(r) for r in rows(task, 'en') if r.id in e.set_aside(task)}
    assert len(shown) == min(3, len(strata)) and len(e.set_aside(task)) == 3


# Readers

WRAPS = ['{}', '```\n{}\n```', '```text\n{}\n```', '<think>Label: neutral, #### 0, Step 1: x</think>{}', '\n\n{}\n\n']


@pytest.mark.parametrize('wrap', WRAPS)
@pytest.mark.parametrize('task', TASKS)
def test_gold_answers_survive_their_wrapping(task, wrap):
    for r in rows(task)[::9]:
        o = e.outcome(r, wrap.format(e.write_answer(r)))
        assert o.right and o.read, (r.id, wrap)


@pytest.mark.parametrize('row', [r for t in TASKS for r in rows(t, 'hi', 75)[:1]], ids=lambda r: r.task)
@pytest.mark.parametrize('bad', ['', ' \n', '```', '```json\n```', 'I am sorry, I cannot help with that.', 'मैं नहीं जानता', 'Mujhe nahi pata.', '{}', '[]', '{"label": "x"}', '{"label": null, "explanation": "x"}', 'null', '<think>positive</think>', 'Label:', 'Label: sahi\nExplanation: kyunki', '####', 'Step 1', '\ud800'])
def test_malformed_answers_are_unread(row, bad):
    o = e.outcome(row, bad)
    assert not o.right and not o.read


@given(st.text())
@fast
def test_no_reader_fails_on_any_text(text):
    for task in ('nli', 'math', 'question_decomposition'):
        row = rows(task, 'bn', 50)[0]
        o = e.outcome(row, text)
        assert isinstance(o.right, bool) and (o.read or not o.right)
    e.read_rating(text)


@given(st.integers(-10**9, 10**9), st.sampled_from(['#### {}', 'so it is = {}', '\\boxed{{{}}}', 'Jawab {} hai.', 'Total:\n**{}**', '#### Rs. {}']), st.booleans())
@fast
def test_numbers_are_read_back(n, form, grouped):
    assert e.read_number(form.format(f'{n:,}' if grouped else n)) == str(n)
    assert e.same_number(e.read_number(form.format(n)), f'{n}.00')


def test_two_numbers_are_no_answer():
    assert e.read_number('#### 3 or 4') is None and e.read_number('3 4') is None and e.read_number('#### 3, that is 3') == '3'


def graphs(n):
    "All reference graphs of n steps."
    return itertools.product(*[[frozenset(s) for k in range(i + 1) for s in itertools.combinations(range(1, i + 1), k)] for i in range(n)])


def text_of(graph): return [' '.join(['return it', *(f'#{r}' for r in refs)]) for refs in graph]


def test_structure_matches_graph_isomorphism():
    nx = pytest.importorskip('networkx')
    def digraph(g):
        d = nx.DiGraph(); d.add_nodes_from(range(1, len(g) + 1)); d.add_edges_from((r, i) for i, refs in enumerate(g, 1) for r in refs)
        return d
    every = list(graphs(3)) + list(graphs(2))
    for a in every:
        for b in every: assert e.same_structure(text_of(a), text_of(b)) == nx.is_isomorphic(digraph(a), digraph(b))
    rng = np.random.default_rng(0)
    four = list(graphs(4))
    for i, j in rng.integers(0, len(four), (80, 2)): assert e.same_structure(text_of(four[i]), text_of(four[j])) == nx.is_isomorphic(digraph(four[i]), digraph(four[j]))


def test_steps_that_refer_ahead_have_no_structure():
    assert e.references(['a #1']) is None and e.references(['a', 'b #3', 'c']) is None and e.references(['a #0']) is None
    assert not e.same_structure(['a #1'], ['a #1'])


# A judge

@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=2, max_size=40))
@fast
def test_judge_agreement_is_scikit_learns(pairs):
    from sklearn.metrics import cohen_kappa_score
    a, b = ({str(i): p[k] for i, p in enumerate(pairs)} for k in (0, 1))
    got, x, y = e.judge_agreement(a, b), [p[0] for p in pairs], [p[1] for p in pairs]
    with np.errstate(invalid='ignore'):
        for mine, weights in ((got.kappa, None), (got.weighted, 'quadratic')):
            want = cohen_kappa_score(x, y, labels=[1, 2, 3], weights=weights) if len({*x, *y}) > 1 else math.nan
            assert mine == pytest.approx(want, abs=1e-9, nan_ok=True)
    assert got.same.value == pytest.approx(np.mean(np.equal(x, y))) and got.mean_difference == pytest.approx(np.mean(np.subtract(x, y)))


def test_a_judge_is_a_generator_and_people_are_read(tmp_path):
    r = Responses('mine', 'math', 'romcom', texts={x.id: e.write_answer(x) for x in rows('math')[:5]})
    class Three:
        card = Card('strict', 'Strict', 'ref', 'A judge.', 'none')
        def generate(self, prompts):
            assert all(json.dumps(p.fields['row'].state, ensure_ascii=False) in p.messages[0]['content'] for p in prompts)
            return ['3' if n % 2 else 'hm' for n, _ in enumerate(prompts)]
    assert e.judge(Three(), r, 'math', tmp_path) == 'computed' and e.judge(Three(), r, 'math', tmp_path) == 'kept'
    got = e.ratings(read_responses('strict', 'math', 'romcom', e.judged_condition('mine'), tmp_path))
    assert list(got.values()) == [None, 3, None, 3, None]
    people = e.read_people(write_jsonl(tmp_path/'p.jsonl', [dict(id=i, rating=3) for i in got]))
    assert e.judge_agreement(got, people)[:2] == (2, 3)
    with pytest.raises(DataError, match='rating'): e.read_people(write_jsonl(tmp_path/'q.jsonl', [dict(id='a', rating=4)]))
    with pytest.raises(DataError, match='twice'): e.read_people(write_jsonl(tmp_path/'q.jsonl', [dict(id='a', rating=1)]*2))


# Measures

cubes = st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=4, max_size=4), min_size=n, max_size=n))


@given(st.lists(cubes, min_size=1, max_size=3))
@fast
def test_gap_is_the_brute_force_mean(tasks):
    outcomes = [o for t, c in zip(('nli', 'sentiment', 'paraphrase'), tasks) for o in made(c, t)]
    g = e.gaps(outcomes, n_boot=20)
    for k, l in enumerate(LEVELS, 1):
        want = np.mean([np.mean([c[b][0][0] - np.mean([x[k] for x in c[b]]) for b in range(len(c))]) for c in tasks])
        assert g.gap[l].value == pytest.approx(want) and g.gap[l].value == pytest.approx(g.accuracy[0].value - g.accuracy[l].value)
        assert g.gap[l].lo - 1e-9 <= g.gap[l].hi
    assert g.bases == sum(map(len, tasks)) and g.unread == 0
    if len(tasks) > 1: assert g.spread[0] == pytest.approx(np.std([np.mean([b[0][0] for b in c]) for c in tasks], ddof=1))


def test_gap_draws_whole_bases():
    cube = [[[1, 1, 1, 0]]*4]*3 + [[[1, 1, 1, 1]]*4]*3
    e1 = e.performance_gap(made(cube), 75)
    x = np.array([1, 1, 1, 0, 0, 0.])
    draws = [x[list(i)].mean() for i in itertools.product(range(6), repeat=6)]
    assert (e1.lo, e1.hi) == pytest.approx(tuple(np.quantile(draws, [.025, .975])), abs=.18) and e1.value == .5
    assert e1.hi - e1.lo > .5          # 24 versions are six bases


@given(st.lists(st.permutations([0., 1., 2., 3.]), min_size=3, max_size=4))
@few
def test_trend_is_scipys_page_test(x):
    want = stats.page_trend_test(x, method='exact')
    got = e.trend_test(x, n_perm=4*10**5)
    assert got.statistic == pytest.approx(want.statistic) and got.p == pytest.approx(want.pvalue, abs=1e-9)


@given(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=1, max_size=3))
@fast
def test_trend_with_ties_is_all_permutations(x):
    ranks = [stats.rankdata(r) for r in x]
    L = lambda rs: sum((np.arange(1, 4)*r).sum() for r in rs)
    all_ = [L(p) for p in itertools.product(*[itertools.permutations(r) for r in ranks])]
    assert e.trend_test(x).p == pytest.approx(np.mean([v >= L(ranks) - 1e-9 for v in all_]))


def test_sampled_trend_is_near_the_exact_one():
    x = [[0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3]]
    assert e.trend_test(x, n_perm=10).p > 0 and e.trend_test(x, n_perm=4000).p == pytest.approx(e.trend_test(x, n_perm=10**5).p, abs=.01)


def test_no_trend_is_not_significant():
    rng = np.random.default_rng(0)
    p = [e.trend_test(rng.random((20, 4)), n_perm=300, seed=s).p for s in range(150)]
    assert .01 < np.mean(np.array(p) < .05) < .11
    assert math.isnan(e.trend_test(np.zeros((0, 4))).p)


@pytest.mark.parametrize('seed', range(4))
def test_level_tests_are_scipys(seed):
    cube = (np.random.default_rng(seed).random((15 + seed, 4, 4)) < [.9, .8, .6, .5]).astype(int).tolist()      # above 13 pairs scipy permutes no more
    for t in e.level_tests(made(cube)):
        k = LEVEL.index(t.level)
        pairs = np.array([float(b[0][0]) - x[k] for b in cube for x in b])
        bases = pairs.reshape(-1, 4).mean(axis=1)
        p = lambda d: min(1, 21*stats.wilcoxon(d).pvalue) if d.any() else 1
        assert t.p == pytest.approx(p(pairs)) and t.p_bases == pytest.approx(p(bases))
        assert t.gap.value == pytest.approx(pairs.mean()) and (t.pairs, t.bases) == (len(pairs), len(bases))
        if pairs.any() and pairs.std() > 0: assert t.d == pytest.approx(pairs.mean()/pairs.std(ddof=1))
    assert e.PAIRS == 21


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
@fast
def test_change_is_an_exact_binomial(pairs):
    at = lambda k: [e.Outcome(str(i), str(i//3), 'nli', 'hi', 25, p[k]) for i, p in enumerate(pairs)]
    c = e.change(at(0), at(1))
    gained, lost = sum(b and not a for a, b in pairs), sum(a and not b for a, b in pairs)
    assert (c.gained, c.lost, c.items) == (gained, lost, len(pairs))
    assert c.p == pytest.approx(stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1)
    assert c.difference.value == pytest.approx(c.after - c.before)


def test_change_looks_only_at_what_both_have():
    a = [e.Outcome('x', 'x', 'nli', 'hi', 25, True), e.Outcome('y', 'y', 'nli', 'hi', 25, True)]
    assert e.change(a, a[:1]).items == 1 and math.isnan(e.change(a, []).before) and e.change([], []).p == 1


# Register

words = st.lists(st.tuples(st.sampled_from(['the', 'kal', 'hai', '3', '"old"', 'step']), st.sampled_from(['en', 'hi', OTHER])), max_size=20)


@given(words)
@fast
def test_content_leaves_no_digit_and_keeps_its_tags(pairs):
    text, tags = ' '.join(w for w, _ in pairs), [t for _, t in pairs]
    kept, got = e.content(text, tags, options=['step'])
    assert len(kept) == len(got) and not any(any(c.isdigit() for c in w) or '"' in w or w == 'step' for w in kept)
    plain = [(w, t) for w, t in pairs if w in ('the', 'kal', 'hai')]
    assert list(zip(kept, got)) == plain
    share = [t == 'en' for _, t in plain if t != OTHER]
    assert (e.defects(got) == float(np.mean(share) > .7)) if share else math.isnan(e.defects(got))


def test_content_needs_a_tag_per_token():
    with pytest.raises(ValueError, match='2 tags for 3 tokens'): e.content('a b c', ['en', 'en'])


def test_label_and_explanation_are_apart():
    row = rows('nli', 'hi', 75)[0]
    parts = e.parts_of_answer(row, f'Label: {row.label}\nExplanation: Sab theek hai.')
    assert parts['label'] == row.label and parts['explanation'] == 'Sab theek hai.' and 'Explanation' not in parts['whole'] and 'Label' not in parts['whole']
    assert list(e.parts_of_answer(rows('math', 'hi', 75)[0], '#### 3')) == ['whole']


@pytest.fixture(scope='module')
def register_of_hindi():
    some = [r for t in ('sentiment', 'nli') for r in rows(t, 'hi') if fold_of(r.cluster) == 0]      # one fold: one identifier to fit
    write = dict(gold=e.write_answer, english=lambda r: f'Label: {r.label}\nExplanation: {r.base.explanation}', partial=lambda r: f'Label: sakaratmak hai\nExplanation: {r.base.explanation}')
    return {k: {(x.part, x.level): x for x in e.register([(r, w(r)) for r in some], n_draws=10)} for k, w in write.items()}


def test_defection_is_what_the_writer_makes(register_of_hindi):
    gold, english, partial = (register_of_hindi[k] for k in ('gold', 'english', 'partial'))
    assert all(english['explanation', l].raw > .85 for l in LEVELS)
    assert gold['explanation', 75].raw < .2 < gold['explanation', 25].raw
    assert all(gold['label', l].counted == 0 and math.isnan(gold['label', l].raw) for l in LEVELS)     # option names are no content
    assert partial['label', 75].counted and partial['label', 75].raw == 0 and partial['explanation', 75].raw > .85     # partial defection: one part only
    for x in gold.values(): assert x.raw != x.raw or x.lo - 1e-9 <= x.corrected <= x.hi + 1e-9


def test_writers_are_known():
    for slug, w in e.WRITERS.items():
        r = rows('nli', 'ta', 50)[0]
        p = e.prompt_of(e.asked_rows('nli', '3-shot')[5], '3-shot')
        text, = w.generate([p])
        row, field = e.writer_source(slug, p.fields['row'], text)
        assert field in ('input', 'explanation')
        assert w.card.track == 'ref'
    assert isinstance(e.WRITERS['romcom-nearest'].generate([e.prompt_of(r)])[0], Failure)


@pytest.mark.parametrize('code', LANGUAGES)
def test_true_tags_have_one_per_token(code):
    for r in [x for t in TASKS for x in rows(t, code, 75)[:3]]:
        for f in ('input', 'explanation'):
            text, tags = e.true_tags(r, f)
            assert len(text.split()) == len(tags)
    assert set(e.true_tags(rows('toxicity', code, 75)[0], 'input')[1]) <= {'en'}


# Coverage

@given(st.sets(st.text('abc', min_size=1, max_size=3), min_size=1), st.lists(st.text('abcd', min_size=1, max_size=4), min_size=1, max_size=8))
@fast
def test_coverage_is_membership_in_the_vocabulary(vocabulary, found):
    tokenizers = pytest.importorskip('tokenizers')
    t = tokenizers.Tokenizer(tokenizers.models.WordPiece({w: i for i, w in enumerate(['[UNK]', 'a', *sorted(vocabulary - {'a'}), *('##' + c for c in 'abc')])}, unk_token='[UNK]'))
    t.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    encode, unknown = e.tokenizer(t)
    assert unknown == 0
    assert e.coverage(found, encode, unknown).value == pytest.approx(np.mean([w in vocabulary | {'a'} for w in found]))


def test_coverage_of_byte_pairs_needs_the_word_start():
    tokenizers = pytest.importorskip('tokenizers')
    t = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(['a', 'k', 'l', 'Ġ', 'Ġk', 'al', 'Ġkal', 'ka', 'kal'])}, [('Ġ', 'k'), ('a', 'l'), ('Ġk', 'al')]))
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    encode, unknown = e.tokenizer(t)
    assert [e.whole_entry(w, encode, unknown) for w in ('kal', 'al', 'l')] == [True, False, False]
    assert math.isnan(e.coverage([], encode).value)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=7))
@few
def test_coverage_against_defection_is_spearman(pairs):
    c = [dict(tokenizer=f's{i}', language='hi', value=a) for i, (a, _) in enumerate(pairs)]
    d = [dict(system=f's{i}', language='hi', part='whole', raw=b + s) for i, (_, b) in enumerate(pairs) for s in (-.125, .125)]
    got = e.coverage_against_defection(c, d)
    x, y = ([p[k] for p in pairs] for k in (0, 1))
    y = [np.mean([b - .125, b + .125]) for b in y]
    if len(set(x)) > 1 and len(set(y)) > 1: assert got.rho == pytest.approx(stats.spearmanr(x, y).statistic)
    assert got.pairs == len(pairs)


def test_switched_words_are_not_english():
    found = e.switched_words('gu', 25)
    assert found == tuple(sorted(set(found))) and len(found) > 50 and set(found) <= set(e.switched_words('gu'))


# Answers from a file stand in for a language model

class Model:
    "Answers like gold in English, and always the first label when mixed."
    card = Card('model', 'A model', 'ref', 'A toy.', 'none', recipe=dict(family='chat'))
    def __init__(self, skill): self.skill = skill
    def generate(self, prompts): return [self.one(p.fields['row'], len(p.fields['shots'])) for p in prompts]
    def one(self, row, k):
        if row.level <= self.skill + 25*(k > 0): return e.write_answer(row)
        return f'Label: {TASKS[row.task].options[0]}\nExplanation: {row.base.explanation}' if TASKS[row.task].options else Failure('declined')


@pytest.fixture(scope='module')
def replayed(tmp_path_factory):
    d = tmp_path_factory.mktemp('replay')
    m = Model(25)
    for c in ('canonical', '3-shot'):
        texts = {p.id: m.one(p.fields['row'], len(p.fields['shots'])) for t in ('nli', 'math', 'sentiment') for p in e.prompts(t, c)}
        path = write_jsonl(d/f'{c}.jsonl', (dict(id=i, response=t) for i, t in texts.items() if not isinstance(t, Failure)))
        e.answer(e.FromFile(path, 'model', 'A model'), ['nli', 'math', 'sentiment'], c, d)
    return d


def test_reasoning_and_shot_tables_from_a_replay(replayed):
    (zero,), (shots,) = e.results(root=replayed), e.results('3-shot', root=replayed)
    assert (zero.kind, set(zero.tasks), e.compared_tasks(zero)) == ('answers', {'math', 'sentiment', 'nli'}, zero.tasks)
    g = e.gaps(zero.outcomes, n_boot=50)
    assert g.accuracy[25].value == 1 and g.gap[75].value > .4 and g.trend.p < .01 and g.unread == pytest.approx(160/780)
    assert zero.tasks[0] == 'math' and e.accuracy_at(e.of_tasks(zero.outcomes, ['math']), 75).value == 0 and g.in_order < 1
    row, = e.gap_table([zero])
    assert row['English'].startswith('100.0') and row['PG 75'].startswith('+')
    table, = e.shot_table([zero], [shots])
    assert table['Bases'] == 51 and float(table['With']) > float(table['Without']) and table['Change'].startswith('+') and table['p (McNemar)'] == '< 0.001'
    assert e.shot_table([], [shots])[0]['Without'] == 'needs demonstrations'


def test_a_failure_is_wrong_and_unread(replayed):
    r = read_responses('model', 'math', 'romcom', root=replayed)
    assert r.failures and all(not o.right and not o.read for o in e.response_outcomes(r, 'math') if o.id in r.failures)


def test_a_language_model_without_answers_reads_not_run(tmp_path):
    rows_ = e.gap_table([], [Model.card])
    assert rows_[0]['System'] == 'A model' and set(rows_[0].values()) == {'A model', 'not run'}
    assert e.is_chat(Model.card) and e.results(root=tmp_path) == [] and e.frozen_answers('model', root=tmp_path) == {} and e.read_eval('register', tmp_path) == []


def test_changed_data_are_refused(replayed, monkeypatch):
    monkeypatch.setattr(e, 'sha256', lambda p: '0'*64)
    with pytest.raises(DataError, match='other data'): e.frozen_answers('model', root=replayed)


def test_answers_from_a_file_are_checked(tmp_path):
    with pytest.raises(DataError, match='twice'): e.FromFile(write_jsonl(tmp_path/'a.jsonl', [dict(id='a', response='x')]*2), 'x')
    with pytest.raises(DataError, match='response'): e.FromFile(write_jsonl(tmp_path/'a.jsonl', [dict(id='a', text='x')]), 'x')


# Heads

def test_heads_never_see_the_base_they_answer():
    for task in ('nli', 'paraphrase'):
        of = e.folds_of(task)
        assert len(of) == 20 and set(of.values()) == set(range(e.FOLDS))
        for o in TASKS[task].options:
            n = [sum(of[r.id] == f and r.label == o for r in rows(task, 'en')) for f in range(e.FOLDS)]
            assert max(n) - min(n) <= 1
        for kind in ('english', 'mixed', 'lexicon'): assert {c for *_, c in e._training(task, kind)} == set(of)
    h = e.CrossFitted('majority', 'mixed')
    q, data = romcom.load('sentiment').question, romcom.load('sentiment')
    p = h.predict(data.states, q)
    of = e.folds_of('sentiment')
    for i in range(0, len(data), 13):
        left = [y for _, y, c in e._training('sentiment', 'mixed') if of[c] != of[data[i].meta['cluster']]]
        assert p[i] == pytest.approx([left.count(o)/len(left) for o in q.options])


def test_a_memorising_head_gains_nothing_from_its_own_base(monkeypatch):
    "A head that only knows texts by heart is right on none of the answered ones."
    def fit(kind, texts, labels, options):
        known = dict(zip(texts, labels))
        return lambda new: np.array([np.eye(len(options))[options.index(known[t])] if t in known else np.full(len(options), 1/len(options)) for t in new])
    monkeypatch.setattr(e, '_fit_head', fit)
    data = romcom.load('nli')
    assert (e.CrossFitted('tfidf', 'mixed').predict(data.states, data.question).max(axis=1) < .5).all()
    assert e.CrossFitted('tfidf', 'mixed').predict(['something new'], data.question).shape == (1, 3)


def test_lexicon_rows_are_mixed_and_labelled():
    english, more = e._training('nli', 'english'), e._training('nli', 'lexicon')
    assert len(english) == 20 and len(more) == 20*13 and more[:20] == english
    labels = {c: y for _, y, c in english}
    assert all(y == labels[c] for _, y, c in more)


def test_heads_answer_their_tasks_only():
    for q in (Question('nli', 'choice', '?', (('a', ''), ('b', ''))), Question('mood', 'choice', '?', (('a', ''), ('b', '')))):
        with pytest.raises(UnsupportedQuestion): e.head('majority-romcom-english').predict(['x'], q)
    with pytest.raises(ValueError): e.CrossFitted('svm', 'mixed')
    assert len({e.head(s).card.version for s in e.HEADS}) == len(e.HEADS)


def test_decisions_of_any_system_become_results(tmp_path):
    t = Toy('toy')
    e.freeze(t, ['nli', 'nli-own', 'toxicity'], tmp_path)
    r, = e.results(root=tmp_path)
    assert (r.kind, r.tasks, e.compared_tasks(r)) == ('decisions', ('nli', 'toxicity'), ('nli',)) and len(r.outcomes) == 520
    own, = e.results('own', root=tmp_path)
    assert own.tasks == ('nli',)


# Intensity

def test_routing_head_is_fitted_to_training_rows_and_their_mixes(monkeypatch):
    seen = {}
    class Pipeline:
        def fit(self, texts, labels): seen.update(texts=texts, labels=list(labels)); return self
    monkeypatch.setattr(e, 'ngram_pipeline', lambda recipe: Pipeline())
    m = e.head('tfidf-romcom-routing')
    m.pipeline
    n = len(e.training_set('train_free').department())
    assert len(seen['texts']) == len(seen['labels']) == 13*n == m.card.training_rows
    assert seen['labels'][:n]*13 == seen['labels'] and not {*seen['texts']} & {*romcom.load('department', 'en').states}
    with pytest.raises(UnsupportedQuestion): m.predict(['x'], romcom.load('nli').question)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1), st.booleans()), min_size=4, max_size=30))
@fast
def test_slope_is_least_squares_with_a_level_per_message(data):
    c, x, y = (np.array(v) for v in zip(*data))
    got = e.within_slope(y, x, c, n_boot=10)
    dummies = (c[:, None] == np.unique(c)[None]).astype(float)
    centred = x - dummies @ (dummies.T @ x/dummies.sum(0))
    if (centred**2).sum() < 1e-3: return
    want = np.linalg.lstsq(np.c_[x, dummies], y.astype(float), rcond=None)[0][0]/10
    assert got.value == pytest.approx(want, abs=1e-6)


def test_intensity_counts_the_versions_of_a_language():
    d = romcom.load('department')
    hit = np.array([i.meta['level'] < 75 or i.meta['language'] != 'ta' for i in d])
    probs = np.eye(3)[np.where(hit, d.gold, (d.gold + 1) % 3)]
    p = Predictions(Header('x', d.name, d.sha256, {d.question.name: list(d.question.options)}), d, probs)
    ta, hi, all_ = (e.intensity(p, l) for l in ('ta', 'hi', None))
    assert (ta.accuracy[75].value, hi.accuracy[75].value, all_.accuracy[75].value) == (0, 1, .75)
    assert ta.slope.hi < 0 == hi.slope.value and ta.share[0] == 0 < ta.share[25] < ta.share[50] < ta.share[75]


# CLI

@pytest.fixture
def run():
    from click.testing import CliRunner
    from polyroute.cli import main
    def call(*args, code=0):
        got = CliRunner().invoke(main, ['romcom', *map(str, args)])
        assert got.exit_code == code, got.output + repr(got.exception)
        return got.output
    return call


def test_cli_prompts_answer_scores(run, tmp_path):
    lines = [json.loads(l) for l in run('prompts', 'nli', '--condition', '3-shot', '--limit', 3).splitlines()]
    assert len(lines) == 3 and [m['role'] for m in lines[0]['messages']][-1] == 'user'
    mine = write_jsonl(tmp_path/'mine.jsonl', [dict(id=r.id, response=e.write_answer(r)) for r in rows('nli') if r.level < 75])
    assert 'mine nli: computed' in run('answer', mine, '--slug', 'mine', '--task', 'nli', '--root', tmp_path)
    assert 'kept' in run('answer', mine, '--slug', 'mine', '--task', 'nli', '--root', tmp_path)
    got, = json.loads(run('scores', '--root', tmp_path, '--json'))
    assert got['accuracy']['50']['value' if isinstance(got['accuracy']['50'], dict) else 0] == 1
    assert 'English' in run('scores', '--root', tmp_path) and '75' in run('scores', '--tests', '--root', tmp_path)
    assert 'has not run' in run('scores', '--system', 'nobody', '--root', tmp_path, code=1)
    run('answer', mine, code=2), run('answer', 'nobody', code=2), run('answer', 'romcom-gold', '--task', 'toxicity', '--condition', 'own', code=2)


def test_cli_evaluate_and_change(run, tmp_path):
    run('evaluate', 'majority-romcom-english', 'tfidf-romcom-english', '--set', 'sentiment', '--root', tmp_path)
    change, = json.loads(run('change', 'majority-romcom-english', 'tfidf-romcom-english', '--root', tmp_path, '--json'))
    assert (change['task'], change['items'], change['bases']) == ('sentiment', 240, 20)
    assert 'p' in run('change', 'majority-romcom-english', 'tfidf-romcom-english', '--root', tmp_path)
    run('change', 'majority-romcom-english', 'nobody', '--root', tmp_path, code=1)
    run('evaluate', 'majority', '--set', 'math', code=2)


def test_cli_coverage_register_and_judge(run, tmp_path):
    tokenizers = pytest.importorskip('tokenizers')
    t = tokenizers.Tokenizer(tokenizers.models.WordPiece({'[UNK]': 0, 'a': 1, 'hai': 2}, unk_token='[UNK]'))
    t.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    t.save(str(tmp_path/'tokenizer.json'))
    got = json.loads(run('coverage', tmp_path/'tokenizer.json', '--name', 'mine', '--write', '--root', tmp_path, '--json'))
    assert [r['language'] for r in got] == list(LANGUAGES) and got[0]['value'] > 0
    assert 'not run' in run('coverage', '--root', tmp_path)
    run('coverage', '--write', code=2), run('register', '--root', tmp_path, code=1)
    run('answer', 'romcom-gold', '--task', 'math', '--root', tmp_path)
    ratings = write_jsonl(tmp_path/'ratings.jsonl', [dict(id=r.id, response='3') for r in rows('math')])
    people = write_jsonl(tmp_path/'people.jsonl', [dict(id=r.id, rating=3) for r in rows('math')[:10]])
    row, = json.loads(run('judge', ratings, 'romcom-gold', '--slug', 'judge', '--people', people, '--root', tmp_path, '--json'))
    assert (row['rated'], row['right'], row['with people']['texts']) == (260, 260, 10)
    run('judge', ratings, 'nobody', '--slug', 'judge', '--root', tmp_path, code=1)
