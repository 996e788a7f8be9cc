"Measures of mixing against hand counts and enumeration, the tagger against all paths and planted languages, the reversal and the slope against their definitions."
import itertools
import json
import math
import sys
from collections import Counter
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from conftest import Toy, fast, few, right_on, run_command as run, toy_data, toy_items
from polyroute import codemixed as cm
from polyroute.codemixed import (INDEPENDENT, MEASURES, Tagger, WordModel, change_test, cmi, cmi_corpus, cmi_sum, cmi_weighted, compare_measures, core, disagreement, fit_tagger, is_independent,
                                 largest_values, mixing, opens_sentence, reversals, score_tags, slope_within, switch_point_fraction, thirds, tokens)
from polyroute.items import DEPARTMENT, VARIETIES, DataError, Item, MissingPackage, load, shipped_data, write_jsonl
from polyroute.leaderboard import read_board
from polyroute.predictions import Header, Predictions, frozen
from polyroute.significance import holm, mcnemar_exact
from polyroute.systems import evaluate

nan = math.isnan
tag_lists = st.lists(st.sampled_from(['en', 'hi', 'ta', 'other']), max_size=14)


# measures

def counted(tags):
    "N, max and P by walking over the tags with a hand on the last language."
    n, per, p, last = 0, {}, 0, None
    for t in tags:
        if t == 'other': continue
        n += 1
        per[t] = per.get(t, 0) + 1
        if last is not None and t != last: p += 1
        last = t
    return n, max(per.values()) if per else 0, p, len(per)

@fast
@given(tag_lists)
@example([]) 
@example(['other'])
def test_measures_against_a_hand_count(tags):
    n, top, p, k = counted(tags)
    assert tuple(mixing(tags)) == (n, top, p, k)
    assert cmi(tags) == pytest.approx((n - top)/n if n else 0) and cmi_weighted(tags) == pytest.approx((n - top + p)/(2*n) if n else 0) and cmi_sum(tags) == pytest.approx((n - top + p)/n if n else 0)
    assert nan(switch_point_fraction(tags)) if n < 2 else switch_point_fraction(tags) == pytest.approx(p/(n - 1))
    assert cmi_weighted(tags, weight=0) == pytest.approx(cmi(tags)) and cmi_weighted(tags, weight=1) == pytest.approx(p/n if n else 0)

@fast
@given(tag_lists, st.randoms(use_true_random=False))
def test_tokens_without_a_language_change_nothing(tags, random):
    more = list(tags)
    for _ in range(4): more.insert(random.randint(0, len(more)), 'other')
    for f in MEASURES.values(): assert f(more) == pytest.approx(f(tags), nan_ok=True) and f(tags[::-1]) == pytest.approx(f(tags), nan_ok=True)
    renamed = [{'en': 'x', 'hi': 'en', 'ta': 'hi'}.get(t, t) for t in tags]
    for f in MEASURES.values(): assert f(renamed) == pytest.approx(f(tags), nan_ok=True)

def test_bounds_by_trying_every_sequence():
    for k, n in [(1, 1), (1, 4), (2, 1), (2, 2), (2, 5), (2, 8), (3, 3), (3, 4), (3, 7), (4, 5)]:
        every = [t for t in itertools.product('abcd'[:k], repeat=n)]
        for name, f in MEASURES.items():
            best = max((f(t) for t in every), key=lambda v: -1 if nan(v) else v)
            assert best == pytest.approx(largest_values(n, k)[name], nan_ok=True), (name, n, k)
            assert nan(best) or 0 <= min(v for t in every if not nan(v := f(t))) and best <= dict(cmi=1 - 1/k, cmi_weighted=1 - 1/(2*k), cmi_sum=2 - 1/k, switch_point_fraction=1)[name] + 1e-12

def test_the_bounds_tell_forms_apart():
    "A mean of 0.711 over two languages can be no share of tokens, and can be the other two."
    assert max(cmi(t) for t in itertools.product('ab', repeat=9)) < .711 < largest_values(40, 2)['cmi_weighted'] < largest_values(40, 2)['cmi_sum']

def test_other_names_for_no_language():
    t = 'lang1 ne lang2 univ lang2'.split()
    assert tuple(mixing(t, ('ne', 'univ'))) == (3, 2, 1, 2) and cmi(t, ('ne', 'univ')) == pytest.approx(1/3)
    with pytest.raises(ValueError, match='between 0 and 1'): cmi_weighted(t, weight=2)

@fast
@given(st.lists(tag_lists, min_size=1, max_size=5))
def test_corpus_index_against_its_formula(utterances):
    total, s, before = 0, 0, None
    for u in utterances:
        n, top, p, _ = counted(u)
        if n: total += 1 - (top - p)/n
        s += p > 0
        order = [t for t in u if t != 'other']
        ties = [t for t in dict.fromkeys(order) if order.count(t) == top]
        matrix = (before if before in ties else ties[0]) if ties else before
        total += before is not None and matrix != before
        before = matrix
    assert cmi_corpus(utterances) == pytest.approx((total/2 + 5*s/6)/len(utterances))

def test_corpus_index_of_nothing(): assert nan(cmi_corpus([]))


# tokens

@fast
@given(st.text(max_size=60))
@example('a\u2028b \ud800 \u200d 👩\u200d👩\u200d👧 नहीं\u200cहो')
def test_any_text_gets_one_tag_a_token(text):
    t = Tagger(('en', 'hi'), (WordModel({'a': 1}), WordModel({'b': 1})), np.full((2, 2), .5), frozenset())
    got = t.tag(text)
    assert len(got) == len(tokens(text)) and set(got) <= {'en', 'hi', 'other'} and all(g == 'other' for g, w in zip(got, tokens(text)) if not any(c.isalpha() for c in w))
    assert all(core(w) in w and core(core(w)) == core(w) for w in tokens(text)) and len(opens_sentence(tokens(text))) == len(tokens(text))

def test_rules_for_tokens_without_a_language():
    known = frozenset({'excel'})
    inside = lambda w: is_independent(w, False, known)
    assert all(map(inside, ['17', '$4.50', '😬', '???', 'OTP', 'GST,', '4B', 'SAYF20', 'x@y.org', 'https://a.b/c', 'www.x.org', 'Marisela', '(Muñoz', '']))
    assert not any(map(inside, ['factura', '7aga', '3andi', 'Excel', 'Monday', 'march', "I'm", 'I', 'I’ve', 'नहीं', '支払い', 'Ｉ' if False else 'a', '4th']))
    assert not is_independent('Marisela', True, known)                   # a sentence may begin with anything
    assert opens_sentence('Hola. Marisela dijo: «Sí ¿Cuándo?'.split()) == [True, True, False, True, True]


# tagger

@few
@given(st.dictionaries(st.text('abc', min_size=1, max_size=4), st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 4))
def test_spellings_and_words_are_distributions(counts, order):
    m = WordModel(counts, order=order)
    every = [''.join(w) for n in range(4) for w in itertools.product('abc', repeat=n)]
    assert sum(math.exp(m.spelling(w)) for w in every) <= 1 + 1e-9 and sum(math.exp(m.log_p(w)) for w in every) <= 1 + 1e-9
    assert m.log_p('zzz') < max(m.log_p(w) for w in counts) and math.isfinite(m.log_p('\ud800' + 'z'*300))

@few
@given(st.lists(st.sampled_from('abcd'), max_size=6), st.floats(.05, .95), st.floats(.05, .95))
def test_posterior_against_all_paths(words, stay, leave):
    t = Tagger(('x', 'y'), (WordModel({'a': 3, 'b': 1}), WordModel({'c': 2, 'b': 2})), np.array([[stay, 1 - stay], [leave, 1 - leave]]), frozenset())
    weight, moves = np.zeros((len(words), 2)), np.zeros((2, 2))
    total = 0
    for path in itertools.product((0, 1), repeat=len(words)):
        p = math.prod(math.exp(t.models[l].log_p(w)) for l, w in zip(path, words))*math.prod(t.transitions[a, b] for a, b in zip(path, path[1:]))
        total += p
        for i, l in enumerate(path): weight[i, l] += p
        for a, b in zip(path, path[1:]): moves[a, b] += p
    got, m = t.posterior(words)
    assert got == pytest.approx(weight/total if words else weight) and m == pytest.approx(moves/total)

def planted(n=60, seed=0):
    "Texts of two invented languages with what each word is; every fifth English word is a new one."
    rng = np.random.default_rng(seed)
    word = lambda consonants, vowels: ''.join(rng.choice(list(consonants)) + rng.choice(list(vowels)) for _ in range(4))
    english, other = lambda: word('bcdfglmn', 'ae'), lambda: word('ktzqxh37', 'iou')
    en, xx = [english() for _ in range(60)], [other() for _ in range(60)]
    out = []
    for _ in range(n):
        state, words, tags = 1, [], []
        for _ in range(15):
            if rng.random() < .25: state = 1 - state
            words.append(english() if state == 0 and rng.random() < .2 else (en, xx)[state][rng.integers(60)]); tags.append(('en', 'xx')[state])
        out.append((' '.join(words), tags))
    return out, en

def test_a_planted_language_is_found():
    texts, en = planted()
    t = fit_tagger([s for s, _ in texts], 'xx', Counter({w: 2 for w in en}), frozenset(), rounds=6)
    share = lambda tag: np.mean([a == b for s, tags in texts for a, b in zip(tag(s), tags)])
    assert share(t.tag) > .955 > share(lambda s: ['en' if w in en else 'xx' for w in s.split()])
    assert t.transitions[0, 0] == pytest.approx(.75, abs=.07) and t.transitions[1, 1] == pytest.approx(.75, abs=.07)

def test_fitting_twice_gives_the_same():
    texts, en = planted(20)
    a, b = (fit_tagger([s for s, _ in texts], 'xx', Counter(en[:60]), frozenset(), rounds=3) for _ in range(2))
    assert np.array_equal(a.transitions, b.transitions) and [a.tag(s) for s, _ in texts] == [b.tag(s) for s, _ in texts]

def test_without_texts_the_tagger_is_the_seed():
    t = fit_tagger(['17 %', ''], 'es', Counter({'the': 2}), frozenset(), seed={'la': 2}, rounds=0)
    assert t.models == () and t.languages == ('en', 'es')

def test_without_wordfreq_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, 'wordfreq', None)
    with pytest.raises(MissingPackage, match=r'polyroute\[mixed\]'): cm.common_english()


# labels and scores

def test_labels_belong_to_the_texts():
    states = {(d.name, i.id): i.state for d in (load('mix_test'), load('ml_hard')) for i in d}
    rows = cm.labelled_tokens()
    assert len({r.id for r in rows}) == len(rows) == 105 and Counter((r.split, r.variety) for r in rows) == {(s, v): n for s, n in (('mix_test', 20), ('ml_hard', 15)) for v in VARIETIES}
    for r in rows: assert r.tokens == tokens(states[r.split, r.id]) and set(r.tags) <= {'en', 'other', cm.MIXED_WITH[r.variety]}

def test_malformed_labels(tmp_path):
    good = dict(id='a', split='s', variety='v', tokens=['x', 'y'], tags=['en', 'en'])
    f = write_jsonl(tmp_path/'a.jsonl', [good, good | {'tags': ['en']}])
    with pytest.raises(DataError, match='line 2.*1 tags for 2 tokens'): cm.labelled_tokens(f)
    with pytest.raises(DataError, match="lacks 'variety'"): cm.labelled_tokens(write_jsonl(tmp_path/'b.jsonl', [{k: v for k, v in good.items() if k != 'variety'}]))

@few
@given(st.lists(st.lists(st.tuples(st.sampled_from(['en', 'hi', 'other']), st.sampled_from(['en', 'hi', 'other'])), min_size=1, max_size=6), min_size=1, max_size=5))
def test_scores_against_a_count(texts):
    s = score_tags([([a for a, _ in t], [b for _, b in t]) for t in texts])
    flat = [p for t in texts for p in t]
    both = [(a, b) for a, b in flat if 'other' not in (a, b)]
    assert (s.texts, s.tokens) == (len(texts), len(flat)) and s.accuracy.value == pytest.approx(np.mean([a == b for a, b in flat])) and s.accuracy.lo <= s.accuracy.value + 1e-9
    assert nan(s.english.value) if not both else s.english.value == pytest.approx(np.mean([a == b for a, b in both]))

def test_measures_by_wrong_tags():
    m = compare_measures([(['en', 'hi', 'hi', 'hi'], ['en', 'en', 'hi', 'hi']), (['en', 'en'], ['en', 'en']), (['en', 'hi'], ['hi', 'en'])])
    assert m['cmi']['reader'] == pytest.approx((1/4 + 0 + 1/2)/3) and m['cmi']['tagger'] == pytest.approx((1/2 + 0 + 1/2)/3) and m['cmi']['distance'] == pytest.approx(1/12) and m['switch_point_fraction']['distance'] == 0

def test_frozen_tags_are_one_a_token():
    for s in cm.SPLITS_WITH_MIXED:
        d = load(s)
        for i, t in zip(d, cm.read_tags(d)): assert (t is None) == ('variety' not in i.meta) and (t is None or len(t) == len(tokens(i.state)) and set(t) <= {'en', 'other', cm.MIXED_WITH[i.meta['variety']]})

def test_tags_are_written_read_and_checked(home, monkeypatch):
    toy_data(home/'data'/'ml_hard.jsonl', 12)
    monkeypatch.setattr(cm, 'english_words', lambda: (Counter({'text': 3}), frozenset()))
    monkeypatch.setattr(cm, 'native_rows', lambda l: Counter())
    with pytest.raises(DataError, match='polyroute tags --write'): cm.read_tags(load('mix_test'))
    path = cm.write_tags()
    first = path.read_bytes()
    assert cm.write_tags().read_bytes() == first
    d = load('mix_test')
    assert all(len(t) == len(tokens(i.state)) for i, t in zip(d, cm.read_tags(d))) and cm.read_tags(load('ml_test')) == [None]*240
    rows = [json.loads(l) for l in path.read_text().split('\n')[:-1]]
    write_jsonl(path, [rows[0] | {'tags': rows[0]['tags'][1:]}, *rows[1:]])
    with pytest.raises(DataError, match=f'line 1, id {rows[0]["id"]!r}.*tags for'): cm.read_tags(d)
    toy_data(home/'data'/'mix_test.jsonl', 24, meta=lambda i: {'variety': 'hinglish'})
    assert cm.read_tags(load('mix_test')) == [None]*24                    # other data have no tags

def test_mixing_table_without_tags(home):
    d = load('mix_test')
    rows = cm.mixing_table(d, [None]*len(d))
    assert [r['items'] for r in rows] == [0, 0, 0] and all(nan(r['english']) and nan(r['cmi'].value) for r in rows)
    assert cm.mixing_table(load('ml_test'), [None]*240) == []


# reversal

def predict(data, hit):
    probs = np.eye(3)[np.where(hit, data.gold, (data.gold + 1) % 3)]
    return Predictions(Header('a', data.name, data.sha256, {'department': list(DEPARTMENT.options)}), data, probs)

@pytest.fixture
def two(tmp_path): return toy_data(tmp_path/'ml_test.jsonl', 240), toy_data(tmp_path/'mix_test.jsonl', 120, meta=lambda i: {'variety': 'hinglish'})

def test_verdicts(two):
    n, m = (np.arange(len(d)) for d in two)
    def verdict(native_only, mixed_only):      # items that the first, then the second system alone gets right
        made = []
        for d, i, (a, b) in ((two[0], n, native_only), (two[1], m, mixed_only)): made += [predict(d, i >= b), predict(d, (i < b) | (i >= a + b))]
        return reversals([tuple(made)])[0]
    r = verdict((0, 60), (30, 0))
    assert r.verdict == 'reverses' and r.native.difference.value == .25 and r.mixed.difference.value == -.25 and r.change.value == pytest.approx(-.5) and r.change.hi < 0 and r.native.p == mcnemar_exact(60, 0)
    assert verdict((0, 60), (5, 3)).verdict == 'changes' and verdict((0, 60), (0, 40)).verdict == 'not shown' and verdict((3, 3), (2, 2)).verdict == 'not shown'
    assert reversals([]) == []
    say = lambda *counts: cm.reversal_text(verdict(*counts), 'pair')
    assert say((0, 60), (30, 0)).startswith('pair: on native text +25.0 [') and 'The order reverses, separated on both splits (-50.0 [' in say((0, 60), (30, 0)) and 'Nominally' not in say((0, 60), (30, 0))
    nominal = say((0, 60), (5, 3))                # ahead and behind, the second by chance
    assert 'Nominally the order reverses, but not separated on both splits; the distance changes (' in nominal and 'not separated: with so few' in nominal
    assert 'Neither a reversal nor a change of distance is shown' in say((3, 3), (2, 2)) and 'The distance changes' in say((0, 80), (2, 2)) and 'Nominally' not in say((0, 80), (2, 2))

def test_several_pairs_are_corrected_together(two):
    n, m = (np.arange(len(d)) for d in two)
    pair = (predict(two[0], n >= 12), predict(two[0], n >= 0), predict(two[1], m >= 0), predict(two[1], m >= 8))
    one, three = reversals([pair])[0], reversals([pair]*3)[0]
    assert one.native.p == three.native.p and three.native.p_holm > one.native.p_holm and three.p_change_holm == pytest.approx(min(1, 3*one.p_change)) and one.p_change_holm == one.p_change

def test_change_test_keeps_its_level_where_spreads_differ():
    "The plain permutation test would not: the small sample is the more variable one."
    rng = np.random.default_rng(3)
    p = [change_test(rng.choice([-1, 0, 1], 240, p=[.02, .96, .02]), rng.choice([-1, 0, 1], 60, p=[.3, .4, .3]), 400, seed=i) for i in range(250)]
    assert np.mean(np.array(p) < .05) < .09
    assert change_test(np.r_[np.ones(80), np.zeros(160)], np.r_[-np.ones(20), np.zeros(40)], 999) == pytest.approx(1/1000)

def test_disagreement_against_a_count(board_home):
    a, b = read_board('ml_test'), read_board('mix_test')
    d = disagreement(a, b)
    acc = lambda x: {c.slug: p.hit.mean() for c, p in zip(x.cards, x.predictions)}
    u, v = acc(a), acc(b)
    assert (d.systems, d.pairs) == (5, 10) and d.opposite == sum((u[s] - u[t])*(v[s] - v[t]) < 0 for s, t in itertools.combinations(u, 2)) and d.separated <= d.opposite and len(d.reversed) == d.separated
    assert disagreement(a, a).opposite == 0 and disagreement(a, a).rho == pytest.approx(1)


# slope

@few
@given(st.integers(0, 10**6))
def test_slope_is_least_squares_with_a_level_for_every_stratum(seed):
    rng = np.random.default_rng(seed)
    n, strata = 30, rng.integers(0, 3, 30)
    x, y = rng.random(n), rng.random(n) < .6
    design = np.c_[x, strata == 0, strata == 1, strata == 2].astype(float)
    want = np.linalg.lstsq(design, y.astype(float), rcond=None)[0][0]/10
    s = slope_within(y, x, strata, 200, 200)
    assert s.per_tenth == pytest.approx(want) and 0 < s.p <= 1 and s.lo <= s.hi

def test_slope_of_strata_alone_is_none():
    "Two varieties that differ in level and in mixing, and no slope within either."
    rng = np.random.default_rng(0)
    strata = np.repeat([0, 1], 100)
    x, y = strata*.3 + rng.random(200)*.1, (rng.random(200) < np.where(strata, .3, .9)).astype(float)
    assert abs(np.corrcoef(x, y)[0, 1]) > .4 and slope_within(y, x, strata, 1000, 500).p > .05
    assert nan(slope_within(y, strata*1., strata).p) and nan(slope_within([], [], []).p)

def test_slope_keeps_its_level():
    rng = np.random.default_rng(2)
    strata = np.repeat([0, 1, 2], 20)
    p = [slope_within(rng.random(60) < .8, rng.random(60), strata, 200, 10, seed=i).p for i in range(200)]
    assert np.mean(np.array(p) < .05) < .1

def test_slopes_in_words():
    slope = lambda b, lo, hi: cm.Slope(b/100, lo/100, hi/100, .5)
    said = cm.slopes_text('Hard', [('a', slope(1, -22.6, 4), .2), ('all', slope(3, 1.8, 9.6), .02), ('none', slope(math.nan, math.nan, math.nan), math.nan)])
    assert 'no slope is separated from zero at 0.01 (Holm)' in said and 'of all 2 rows, which share the items, exclude costs beyond 22.6 points and gains beyond 9.6' in said
    assert 'of the row “all”, by itself, excludes any cost and gains beyond 9.6' in said and 'harder' not in said and 'easier' not in said
    said = cm.slopes_text('Hard', [('a', slope(-5, -9, -1), .0004)])
    assert 'shown for a (-5.0 points per 0.1, p < 0.001)' in said and 'costs beyond 9.0 points and any gain' in said
    assert cm.slopes_text('Hard', []) == ''

@few
@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from('ab')), min_size=1, max_size=30))
def test_thirds_are_thirds(rows):
    value, strata = np.array([v for v, _ in rows]), np.array([s for _, s in rows])
    t = thirds(value, strata)
    for s in set(strata):
        size = np.bincount(t[strata == s], minlength=3)
        assert size.max() - size.min() <= 1 and all(value[(strata == s) & (t == a)].max() <= value[(strata == s) & (t == b)].min() for a, b in ((0, 1), (1, 2)) if size[a] and size[b])


# command line

def test_tags_command():
    rows = json.loads(run('tags', '--json'))
    assert len(rows) == 6 and {r['variety'] for r in rows} == set(VARIETIES) and all(0 <= r['cmi']['value'] <= .5 for r in rows)
    assert 'spanglish' in run('tags')

def test_tags_command_without_tags(home): assert 'polyroute tags --write' in run('tags', code=1)

def test_mixing_command(tmp_path):
    f = write_jsonl(tmp_path/'t.jsonl', [{'id': 'x', 'tags': ['en', 'hi', 'univ']}, {'tags': ['en']}])
    data = json.loads(run('mixing', f, '--json', '--independent', 'univ'))
    assert [t['id'] for t in data['texts']] == ['x', '2'] and data['texts'][0]['cmi'] == .5 and data['texts'][1]['switch_point_fraction'] is None
    assert data['corpus'] == pytest.approx(((1/2 + 1/2)/2 + 5/6)/2) and '0.500' in run('mixing', f, '--independent', 'univ')
    assert 'line 1' in run('mixing', write_jsonl(tmp_path/'u.jsonl', [{'tags': 'en hi'}]), code=1)


def test_a_slope_refuses_what_is_no_number():
    with pytest.raises(ValueError, match='finite'): cm.slope_within([1, np.nan, 3.], [.1, .2, .3], ['a']*3, 50, 50)
