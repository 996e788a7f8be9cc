"The alignment against enumeration and planted texts, the chain against all paths, scores against scikit-learn, the correction against simulated truth; held-out clusters; odd scripts and texts; commands."
import itertools
import json
import math
from collections import Counter
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from conftest import fast, few
from polyroute import token_language as tl
from polyroute.codemixed import core, tokens
from polyroute.items import DataError, data_dir, outputs_dir
from polyroute.token_language import (COMBINATIONS, FOLDS, OTHER, ROMCOM, SUITES, Errors, Labelled, Recipe, aligned, count_errors, cross_fit, defects, english_share, errors, fit, fold_of, has_language, in_order, labelled,
                                      propagate, read_tags, score, simulate, skeleton, tagged, train, two_passes, words_of)

there = pytest.mark.skipif(not (data_dir()/'romcom').is_dir() or not (data_dir()/'pingpong').is_dir(), reason='the suites are not built')


# alignment

def every_reading(mixed, base, replaced):
    "All readings in the order of the base, by brute force: how many words each explains."
    if not mixed: return [0]
    out = list(every_reading(mixed[1:], base, replaced))
    for j in range(len(base)):
        if mixed[0] == base[j]: out += [1 + n for n in every_reading(mixed[1:], base[j + 1:], replaced)]
        for s, t in replaced:
            if s and t and mixed[:len(t)] == t and base[j:j + len(s)] == s: out += [len(t) + n for n in every_reading(mixed[len(t):], base[j + len(s):], replaced)]
    return out

short = st.lists(st.sampled_from('abc'), max_size=5)
phrases = st.lists(st.tuples(st.lists(st.sampled_from('abc'), min_size=1, max_size=2), st.lists(st.sampled_from('abcx'), min_size=1, max_size=2)), max_size=2)

@fast
@given(short, short, phrases)
@example(['a', 'b'], ['b', 'a'], [])
@example([], [], [])
def test_the_reading_explains_as_much_as_any_and_is_one(mixed, base, replaced):
    got = in_order(mixed, base, replaced)
    assert len(got) == len(mixed) and sum(x is not None for x in got) == max(every_reading(mixed, base, replaced))
    last = 0
    for (key, run) in itertools.groupby(range(len(got)), key=lambda i: got[i]):
        run = list(run)
        if key is None: continue
        copied, a, b = key
        assert a >= last or len(run) > 1 and not copied
        last = b
        if copied: assert [mixed[i] for i in run] == base[a:b]
        else: assert any(s == base[a:b] and len(run) % len(t) == 0 and [mixed[i] for i in run] == t*(len(run)//len(t)) for s, t in replaced)

@few
@given(st.data())
def test_planted_replacements_are_found(data):
    "English words e0…, their translations h0…: whatever is replaced, in whatever order, the labels come back."
    words = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=9))
    gone = data.draw(st.sets(st.integers(0, 6)))
    order = data.draw(st.permutations(range(len(words))))
    base = ' '.join(f'engl{w}q' for w in words)
    mixed = [(f'hind{words[i]}q', 'hi') if words[i] in gone else (f'engl{words[i]}q', 'en') for i in order]
    got = aligned(' '.join(f'"{w.capitalize()},' for w, _ in mixed), base, 'hi', [(f'engl{w}q', f'hind{w}q') for w in gone])
    assert got == [l for _, l in mixed]

def test_words_that_are_both():
    subs = [('shops', 'dukaan'), ('were', 'the')]
    assert aligned('the dukaan the here', 'the shops were here', 'hi', subs) == ['en', 'hi', 'hi', 'en']
    assert aligned('dukaan the', 'the shops were', 'hi', subs) == ['hi', 'hi']
    assert aligned('main to ghar gaya', 'I went home to rest', 'hi', [('I', 'main')], either={'to'}) == ['hi']*4     # another order, no neighbour copied
    assert aligned('main went to rest', 'I went to rest', 'hi', [('I', 'main')], either={'to', 'main'}) == ['hi', 'en', 'en', 'en']
    assert aligned('Sunita-r shohor 2019-e', 'The city of Sunita in 2019', 'bn', [('city', 'shohor')], {'sunita'}) == ['other', 'bn', 'bn']
    assert aligned('khane ka metre', 'the metres of food', 'hi', [('food', 'khane')]) == ['hi', 'hi', 'en']

@there
@pytest.mark.parametrize('language', ['ta'])
def test_labels_of_the_suite_are_complete_and_agree_with_the_log(language):
    rows = labelled('romcom', language)
    assert len({(r.id, r.field) for r in rows}) == len(rows) and {fold_of(r.cluster) for r in rows} == set(range(FOLDS))
    for r in rows:
        if r.tags is None: assert r.field == 'instruction'; continue
        assert len(r.tags) == len(r.tokens) and set(r.tags) <= {'en', language, OTHER}
        assert all(t == OTHER for w, t in zip(r.tokens, r.tags) if not has_language(w))
        if r.level == 0: assert language not in r.tags
    share = {v: np.mean([t == 'en' for r in rows if r.judged and r.level == v for t in r.tags if t != OTHER]) for v in (25, 50, 75)}
    assert share[25] > share[50] > share[75]

@there
def test_two_derivations_of_the_labels_agree():
    romcom = pytest.importorskip('polyroute.romcom')
    mine = {}
    for r in labelled('romcom', 'gu'):
        if r.judged: mine.setdefault(r.id, []).extend(zip(r.tokens, r.tags))
    same = [a[1] == b[1] for row in romcom.rows(language='gu') for a, b in zip(romcom.token_labels(row), mine[row.id], strict=True)]
    assert np.mean(same) > .98

def test_labels_that_do_not_fit_are_named():
    row = dict(id='d', turns=[dict(n=1, text='a b')], token_langs=[['en']])
    with pytest.raises(DataError, match='1 labels for 2 tokens of turn 1'): tl.pingpong_labelled([row], 'id-en')
    assert tl.pingpong_labelled([dict(row, token_langs=[])], 'id-en')[0].tags is None
    with pytest.raises(ValueError, match='no tokens of'): labelled('romcom', 'id-en')


# the chain

def all_paths(evidence, start, steps):
    "Posterior and expected steps by walking every path."
    n, l = evidence.shape
    post, moves, total = np.zeros((n, l)), np.zeros((l, l)), 0
    for path in itertools.product(range(l), repeat=n):
        p = math.prod(np.exp(evidence[i, s]) for i, s in enumerate(path))*start[path[0]]*math.prod(steps[a, b] for a, b in zip(path, path[1:]))
        total += p
        for i, s in enumerate(path): post[i, s] += p
        for a, b in zip(path, path[1:]): moves[a, b] += p
    return post/total, moves/total

@few
@given(st.integers(0, 10**6), st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_two_passes_against_all_paths(seed, lengths):
    rng = np.random.default_rng(seed)
    rows, start, steps = [rng.normal(0, 3, (n, 3)) for n in lengths], rng.dirichlet([1]*3), rng.dirichlet([1]*3, 3)
    got, moves = two_passes(rows, start, steps), np.zeros((3, 3))
    for r, p in zip(rows, got.posterior):
        if not len(r): assert not p.any(); continue
        want, m = all_paths(r, start, steps)
        moves += m
        assert np.allclose(p[:len(r)], want, atol=1e-9) and not p[len(r):].any()
    assert np.allclose(got.moves, moves, atol=1e-9)

def test_drawn_labels_follow_the_posterior():
    rng = np.random.default_rng(1)
    e, start, steps = rng.normal(0, 1, (3, 2)), np.array([.3, .7]), np.array([[.8, .2], [.4, .6]])
    passed = two_passes([e]*20000, start, steps)
    drawn = tl._draw(passed.ahead, passed.there, steps, rng)
    paths = Counter(map(tuple, drawn.tolist()))
    want = {p: math.prod(np.exp(e[i, s]) for i, s in enumerate(p))*start[p[0]]*math.prod(steps[a, b] for a, b in zip(p, p[1:])) for p in itertools.product(range(2), repeat=3)}
    for p, v in want.items(): assert paths[p]/20000 == pytest.approx(v/sum(want.values()), abs=.015)


# identifiers

def toy(n=12):
    "Texts whose English words end in -ing and whose other words end in -oo; every word occurs in one cluster only."
    rng, out = np.random.default_rng(0), []
    for i in range(n):
        words = [(''.join(rng.choice(list('bdgklmnprst'), 4)), bool(rng.integers(2))) for _ in range(10)]
        out.append(Labelled(f't-{i:02d}', f't-{i:02d}', 'hi', 'x', 0, [w + ('ing' if e else 'oo') for w, e in words] + ['7'], ['en' if e else 'hi' for _, e in words] + [OTHER], True))
    return out

@pytest.mark.parametrize('recipe', [Recipe('letters'), Recipe('letters', chain=True), Recipe('counts', chain=True)])
def test_unseen_words_are_told_by_their_letters(recipe):
    rows = toy()
    m = train(rows[:9], 'romcom', 'hi', recipe)
    for r in rows[9:]: assert m.tags(r.text) == r.tags
    assert m.tags_of([r.text for r in rows]) == [m.tags(r.text) for r in rows] and m.languages == ('en', 'hi')

odd = st.text(st.sampled_from('aZ क\u093f\u200d\u200cب\u0651ّ😂👩\u200f\u2028\u00a0.,7<>\ud800é'), max_size=25)

@fast
@given(odd)
@example('')
@example('😂😂 🤡')
@example('\u200d \u200f')
@example('मैंने कहा। ठीक है')
@example('مرحبا، كيفَ الحالُ؟')
@example('a\u0301 e\u0301')
@example('<<1+1=2>> #1 www.a.in')
def test_any_text_gets_one_tag_a_token(text):
    got = TOY.tags(text)
    assert len(got) == len(text.split()) and set(got) <= set(TOY.labels)
    assert all(t == OTHER for w, t in zip(text.split(), got) if not any(c.isalpha() for c in core(w)))
    words, where = words_of(text.split())
    assert len(words) == len(where) == sum(map(has_language, text.split()))

TOY = train(toy(), 'romcom', 'hi', Recipe('letters', chain=True))

def test_marks_and_joiners_stay_inside_a_word():
    assert words_of(['क्\u200dष,', 'کتاب‌ها']) == ([('क्\u200dष', True), ('کتاب‌ها', False)], [0, 1])
    assert all(f'<{w}'[:3] in tl.letter_features(w, True) for w in ('ɗina', 'ب\u0651'))

@few
@given(st.text(st.sampled_from('abchpkoaei\u0101\u0323'), max_size=8))
def test_a_skeleton_forgets_doubling_and_capitals(word):
    assert skeleton(word.upper()) == skeleton(word) and skeleton(''.join(c*2 if c.isalpha() and c not in 'eoc' else c for c in word)) == skeleton(word) or 'h' in word

@there
def test_held_out_clusters_are_not_seen(monkeypatch):
    seen = []
    monkeypatch.setattr(tl, 'train', lambda rows, *a, **k: seen.append({r.cluster for r in rows}) or TOY)
    tl._fit.cache_clear()
    try:
        own = sorted({r.cluster for r in labelled('pingpong', 'id-en')})
        cross_fit('pingpong', 'id-en').tags_of(['a', 'b c', ''], [own[0], None, 'elsewhere'])
        few_, all_ = sorted(seen, key=len)
        assert all_ == set(own) and few_ == {c for c in own if fold_of(c) != fold_of(own[0])}
        seen.clear(); fit('pingpong', 'id-en', [own[3]], Recipe('counts'))
        assert seen == [set(own) - {own[3]}]
    finally: tl._fit.cache_clear()

@there
def test_pooling_leaves_out_the_dialogues_of_the_same_number():
    more = tl._more('pingpong', 'id-en', Recipe('letters', pooled=True), frozenset({'id-en-03'}))
    assert more and 'id-en' not in {r.language for r in more} and fold_of('id-en-03') not in {fold_of(r.cluster) for r in more}
    assert tl._more('pingpong', 'id-en', Recipe('letters')) == []

@there
def test_folds_share_no_cluster_and_are_all_used():
    for s, l in (('romcom', 'hi'), ('pingpong', 'ha-en')):
        by = {f: {r.cluster for r in labelled(s, l) if fold_of(r.cluster) == f} for f in range(FOLDS)}
        assert all(by.values()) and sum(map(len, by.values())) == len(set().union(*by.values()))
        assert max(map(len, by.values())) == min(map(len, by.values()))


# frozen tags

frozen = [(s, l) for s, ls in SUITES.items() for l in ls]

@there
@pytest.mark.parametrize('suite,language', frozen)
def test_frozen_tags_fit_the_texts(suite, language):
    rows = tagged(suite, language)
    assert len(rows) == len(read_tags(suite, language)) == len(labelled(suite, language))
    for r, t in rows:
        assert len(t) == len(r.tokens)
        assert all(x == OTHER for w, x in zip(r.tokens, t) if not has_language(w))

@there
def test_frozen_tags_are_what_the_chosen_recipe_gives(tmp_path):
    rows = [r for r in labelled('pingpong', 'ha-en') if fold_of(r.cluster) == 2]
    want = read_tags('pingpong', 'ha-en')
    assert cross_fit('pingpong', 'ha-en').tags_of([r.text for r in rows], [r.cluster for r in rows]) == [want[r.id, r.field] for r in rows]

@there
def test_the_identifier_beats_the_majority_and_tells_romanised_from_english():
    for s, l in frozen:
        got = score(errors(s, l), n_boot=200)
        assert got.accuracy.lo > got.majority and got.accuracy.lo <= got.accuracy.value <= got.accuracy.hi, (s, l)
        if s == 'romcom': assert got.english.value > .95 and got.clusters == 140, (s, l)

@there
def test_tags_of_other_texts_are_refused(tmp_path):
    path = tl.tags_path('romcom', 'hi', tmp_path)
    with pytest.raises(DataError, match='romcom tags --write'): read_tags('romcom', 'hi', tmp_path)
    path.parent.mkdir()
    lines = tl.tags_path('romcom', 'hi').read_text(encoding='utf-8').split('\n')
    row = json.loads(lines[4]); row['text'] = '0'*12
    path.write_text('\n'.join([*lines[:4], json.dumps(row), *lines[5:]]), encoding='utf-8')
    with pytest.raises(DataError, match='are of another text'): tagged('romcom', 'hi', tmp_path)


# scores

def planted(seed=0, clusters=12, n=40):
    rng, out = np.random.default_rng(seed), []
    for c in range(clusters):
        gold = rng.choice(['en', 'hi', OTHER], n, p=[.5, .4, .1]).tolist()
        out.append((Labelled(f'c-{c:02d}', f'c-{c:02d}', 'hi', 'x', 0, ['w']*n, gold, True), [g if rng.random() < .8 else rng.choice(['en', 'hi', OTHER]) for g in gold]))
    return out

def test_scores_against_scikit_learn():
    from sklearn.metrics import accuracy_score, f1_score, recall_score
    pairs = planted()
    gold, got = [g for r, _ in pairs for g in r.tags], [t for _, p in pairs for t in p]
    s = score(count_errors(pairs, 'romcom', 'hi'))
    assert s.accuracy.value == pytest.approx(accuracy_score(gold, got)) and s.macro_f1.value == pytest.approx(f1_score(gold, got, average='macro'))
    for l, r in zip(('en', 'hi', OTHER), recall_score(gold, got, labels=['en', 'hi', OTHER], average=None)): assert s.recall[l].value == pytest.approx(r)
    inside = [(g == 'en', p == 'en') for g, p in zip(gold, got) if g != OTHER]
    assert s.english.value == pytest.approx(np.mean([a == b for a, b in inside])) and s.english_majority == pytest.approx(max(np.mean([a for a, _ in inside]), 1 - np.mean([a for a, _ in inside])))
    assert s.accuracy.lo < s.accuracy.value < s.accuracy.hi

def test_the_interval_resamples_clusters():
    "All errors in one of four clusters: the interval is wide. Spread evenly: it has no width."
    one = Errors('romcom', 'hi', ('en', OTHER), tuple('abcd'), np.array([[[10, 0], [0, 0]]]*3 + [[[0, 10], [0, 0]]], dtype=float))
    even = one._replace(counts=np.array([[[9, 3], [0, 0]]]*4, dtype=float))
    assert score(one).accuracy.hi - score(one).accuracy.lo > .5 and score(even).accuracy.hi == score(even).accuracy.lo == .75
    assert one.only(lambda c: c != 'd').total.tolist() == [[30, 0], [0, 0]]

def test_unjudged_rows_and_signs_do_not_count():
    r = Labelled('a', 'a', 'hi', 'x', 0, ['w', '7', '😂'], ['en', OTHER, OTHER], True)
    assert count_errors([(r, ['hi', OTHER, OTHER]), (r._replace(judged=False), ['en', OTHER, OTHER])], 'romcom', 'hi').total.sum() == 1
    with pytest.raises(ValueError): count_errors([(r, ['hi'])], 'romcom', 'hi')

def test_a_suite_without_english_has_no_english_score():
    r = Labelled('a', 'a', 'ar-dz-fr', 'x', 0, ['w', 'v'], ['fr', 'arq'], True)
    s = score(count_errors([(r, ['fr', 'fr'])], 'pingpong', 'ar-dz-fr'))
    assert math.isnan(s.english.value) and math.isnan(s.english_majority) and s.accuracy.value == .5
    assert tl.score_row(s)['English or not'] == '–' and tl.score_row(s, numbers=True)['English or not'] == dict(value=None, lo=None, hi=None)
    json.dumps(tl.score_row(s, numbers=True), allow_nan=False)

@fast
@given(st.lists(st.sampled_from(['en', 'hi', OTHER]), max_size=12), st.sampled_from([.5, .7, .9]))
def test_share_and_defection_by_hand(tags, threshold):
    e, n = tags.count('en'), len(tags) - tags.count(OTHER)
    if not n: assert math.isnan(english_share(tags)) and math.isnan(defects(tags)); return
    assert english_share(tags) == e/n and defects(tags, threshold) == (e/n > threshold)


# propagation

LABELS = ('en', 'hi', OTHER)
RATES = np.array([[.9, .08, .02], [.05, .93, .02], [.1, .1, .8]])
MEASURES = {'english': english_share, 'defects': defects}

def calibration(seed, n=80):
    rng = np.random.default_rng(seed)
    even = np.array([[.45, .45, .1]]*3)
    pairs = zip(*simulate(LABELS, even[0], even, RATES, n, 14, rng))
    return count_errors([(Labelled(str(i), str(i), 'hi', 'x', 0, ['w']*14, t, True), g) for i, (t, g) in enumerate(pairs)], 'romcom', 'hi')

def test_without_errors_nothing_is_corrected():
    e = Errors('romcom', 'hi', LABELS, tuple('abcd'), np.array([np.eye(3)*1e6]*4))
    tags = [['en', 'hi', OTHER], ['en', 'en', 'en']]
    for p in propagate(['a b c', 'd e f'], tags, e, MEASURES, n_draws=10).values(): assert p.raw == pytest.approx(p.corrected, abs=1e-6) and p.hi - p.lo < 1e-6 and p.texts == 2

def test_the_correction_holds_where_the_prevalence_is_another():
    "English answers: the rates come from texts that are half English, the truth is nearly all English."
    rng, errs, held = np.random.default_rng(5), [], 0
    start, steps = np.array([.93, .02, .05]), np.array([[.93, .02, .05]]*3)
    for s in range(8):
        true, shown = simulate(LABELS, start, steps, RATES, 50, 14, rng)
        truth = np.nanmean([english_share(t) for t in true])
        p = propagate(['w '*14]*50, shown, calibration(s), MEASURES, n_draws=25, seed=s)['english']
        errs.append((p.raw - truth, p.corrected - truth)); held += p.lo <= truth <= p.hi
    raw, corrected = np.abs(np.mean(errs, axis=0))
    assert raw > .04 and corrected < raw/2 and held >= 6

def test_an_interval_with_clusters_is_wider_and_runs_repeat():
    rng = np.random.default_rng(2)
    _, shown = simulate(LABELS, np.array([.5, .4, .1]), np.array([[.8, .1, .1], [.1, .8, .1], [.4, .5, .1]]), RATES, 30, 8, rng)
    texts, e = ['w '*8]*30, calibration(0)
    a, b = (propagate(texts, shown, e, MEASURES, n_draws=25, clusters=c)['english'] for c in (None, [str(i//3) for i in range(30)]))
    assert b.hi - b.lo > a.hi - a.lo and a == propagate(texts, shown, e, MEASURES, n_draws=25)['english']

def test_texts_without_a_language_and_wrong_tags():
    e = calibration(0, 5)
    p = propagate(['😂', '', 'w'], [[OTHER], [], ['en']], e, MEASURES, n_draws=10)['english']
    assert p.texts == 1 and 0 <= p.lo <= p.corrected <= p.hi <= 1
    empty = propagate([], [], e, MEASURES, n_draws=5)['english']
    assert empty.texts == 0 and math.isnan(empty.raw) and math.isnan(empty.corrected)
    with pytest.raises(ValueError, match="not known for the tag 'ta'"): propagate(['w'], [['ta']], e, MEASURES)
    with pytest.raises(ValueError, match='2 tags for 1 tokens'): propagate(['w'], [['en', 'en']], e, MEASURES)


def test_a_difference_is_taken_off():
    lab = lambda i, g: Labelled(f'a-{i}', f'a-{i//2}', 'hi', 'x', 0, ['w']*4, g.split(), True)
    pairs = [(lab(0, 'en en hi hi'), 'en en en hi'.split()), (lab(1, 'en en en hi'), 'en en en hi'.split()), (lab(2, 'hi hi hi hi'), 'en hi hi hi'.split()), (lab(3, 'en en en en'), 'en en en en'.split())]
    tags = [['en', 'hi'], ['en', 'en'], [OTHER]]
    p = tl.by_difference(tags, pairs, MEASURES)['english']
    assert p.raw == .75 and p.corrected == pytest.approx(.75 - .125) and p.lo <= p.corrected <= p.hi and p.texts == 2
    assert tl.by_difference(tags, pairs, MEASURES, clusters=['x', 'y', 'z'])['english'].hi > p.hi
    same = [(r, r.tags) for r, _ in pairs]
    assert tl.by_difference(tags, same, MEASURES)['english'] == tl.Propagated(.75, .75, .75, .75, 2)
    with pytest.raises(ValueError, match='no labelled text'): tl.by_difference(tags, [(r._replace(judged=False), t) for r, t in pairs], MEASURES)


# CLI

@there
def test_tags_commands(tmp_path):
    from click.testing import CliRunner
    from polyroute.cli import main
    run = lambda *a: CliRunner().invoke(main, list(a))
    rows = json.loads(run('romcom', 'tags', '--json', '--language', 'hi').output)
    assert rows[0]['language'] == 'hi' and .95 < rows[0]['English or not']['value'] <= 1
    assert 'ar-dz-fr' in run('pingpong', 'tags').output
    path = tmp_path/'a.txt'
    path.write_text('saya makan rice 😂\n\nok', encoding='utf-8')
    got = [json.loads(l) for l in run('pingpong', 'tags', '--language', 'id-en', '--text', str(path)).output.splitlines()]
    assert [len(g['tags']) for g in got] == [4, 0, 1] and got[0]['tags'][3] == OTHER
    assert run('pingpong', 'tags', '--text', str(path)).exit_code == 2 and run('romcom', 'tags', '--select').exit_code == 2
