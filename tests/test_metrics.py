"Metrics against statsmodels, scikit-learn and brute force, the published intervals, and the cells where nothing can be divided."
import math
import warnings
import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn import metrics as sk
from statsmodels.stats.proportion import proportion_confint
from conftest import fast
from polyroute import metrics as m
from polyroute.items import reference

PAPER = reference()
nan = math.isnan


@st.composite
def scored(draw, min_n=0, max_n=30, zeros=True):
    "Probabilities with many ties and zeros, and gold options."
    n, k = draw(st.integers(min_n, max_n)), draw(st.integers(2, 7))
    w = np.array(draw(st.lists(st.lists(st.integers(0 if zeros else 1, 4), min_size=k, max_size=k), min_size=n, max_size=n)), dtype=float).reshape(n, k)
    w[w.sum(axis=1) == 0] = 1
    return w / w.sum(axis=1, keepdims=True), np.array(draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)), dtype=int)


@st.composite
def answered(draw, min_n=0):
    "Confidences with ties, right and wrong, and ids in no order."
    n = draw(st.integers(min_n, 30))
    conf = draw(st.lists(st.sampled_from([0, .1, .3, 1/3, .5, .7, .9, 1]) | st.floats(0, 1), min_size=n, max_size=n))
    hit = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    ids = draw(st.lists(st.text('abé한👩\u200d10', min_size=1, max_size=4), min_size=n, max_size=n, unique=True))
    return np.array(conf, dtype=float), np.array(hit, dtype=bool), np.array(ids, dtype=object)


# Wilson

@fast
@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from([.5, .9, .95, .99, .999]))
def test_wilson_equals_statsmodels(kn, conf):
    assert m.wilson(*kn, conf) == pytest.approx(proportion_confint(*kn, alpha=1 - conf, method='wilson'), abs=1e-9)

def test_wilson_is_vectorised_and_keeps_shape():
    k, n = np.array([[0, 3], [5, 10]]), np.array([10, 20])
    lo, hi = m.wilson(k, n)
    assert lo.shape == hi.shape == (2, 2)
    for i, j in np.ndindex(2, 2): assert (lo[i, j], hi[i, j]) == m.wilson(int(k[i, j]), int(n[j]))
    assert all(isinstance(x, float) for x in m.wilson(3, 4))

def test_wilson_at_the_ends():
    assert m.wilson(0, 0) == (0, 1)                       # nothing seen, nothing known
    assert m.wilson(0, 5)[0] == 0 and m.wilson(5, 5)[1] == 1
    lo, hi = m.wilson([0, 0], [0, 4])
    assert (lo[0], hi[0]) == (0, 1) and hi[1] < 1

@pytest.mark.parametrize('k, n', [(-1, 3), (4, 3), ([1, 5], [2, 4])])
def test_wilson_refuses_impossible_counts(k, n):
    with pytest.raises(ValueError, match='0 <= k <= n'): m.wilson(k, n)

@pytest.mark.parametrize('conf', [0, 1, -1, 95])
def test_wilson_refuses_confidence(conf):
    with pytest.raises(ValueError, match='conf'): m.wilson(1, 2, conf)

@pytest.mark.parametrize('row', PAPER['table10_11_leaderboard'], ids=lambda r: r['system'])
def test_published_wilson_intervals(row):
    got = m.wilson(row['correct_of_322'], 322)
    assert [round(100*x, 1) for x in got] == row['wilson_pct']
    assert round(100*row['correct_of_322']/322, 1) == row['accuracy_pct']

MIXED = [r for r in PAPER['table10_11_leaderboard'] if r['code_mixed_pct'] is not None]

@pytest.mark.parametrize('row', MIXED, ids=lambda r: r['system'])
def test_published_code_mixed_intervals(row):
    k = round(row['code_mixed_pct']*156/100)
    assert round(100*k/156, 1) == row['code_mixed_pct']
    assert [round(100*x, 1) for x in m.wilson(k, 156)] == row['code_mixed_wilson_pct']

def test_the_paper_gives_thirteen_intervals_and_eight_code_mixed_ones():
    assert len(PAPER['table10_11_leaderboard']) == 13 and len(MIXED) == 8

def test_published_audit_and_english_intervals():
    a, e = PAPER['audit'], PAPER['table17_router']
    assert [round(100*x, 1) for x in m.wilson(a['agree'], a['n'])] == a['wilson_pct']
    k = round(e['english_accuracy_pct']*e['english_items']/100)
    assert [round(100*x, 1) for x in m.wilson(k, e['english_items'])] == e['english_wilson_pct']


# decisions and class scores

@fast
@given(scored())
def test_decisions(pg):
    p, g = pg
    first = [next(j for j, x in enumerate(row) if x == max(row)) for row in p.tolist()]
    assert m.decide(p).tolist() == first                   # ties go to the first option
    assert m.correct(p, g).tolist() == [a == b for a, b in zip(first, g)]
    assert m.confidence(p).tolist() == [max(r) for r in p.tolist()]
    assert nan(m.accuracy(p, g)) if not len(g) else m.accuracy(p, g) == pytest.approx(sk.accuracy_score(g, first))

@fast
@given(scored(min_n=1))
def test_macro_f1_equals_sklearn(pg):
    p, g = pg
    assert m.macro_f1(p, g) == pytest.approx(sk.f1_score(g, m.decide(p), average='macro'))

@fast
@given(scored(min_n=1))
def test_class_scores_equal_sklearn(pg):
    p, g = pg
    k, d = p.shape[1], m.decide(p)
    want = sk.precision_recall_fscore_support(g, d, labels=range(k), zero_division=np.nan)
    got = m.class_scores(d, g, k)
    for name, w in zip(('precision', 'recall', 'f1', 'support'), want):
        defined = ~np.isnan(w)
        assert got[name][defined] == pytest.approx(w[defined])
    assert np.isnan(got['precision'][~np.isin(np.arange(k), d)]).all() and np.isnan(got['recall'][got['support'] == 0]).all()

def test_class_scores_never_warn_and_are_nan_where_undefined():
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        s = m.class_scores([0, 0], [0, 0], 3)
    assert s['f1'].tolist()[0] == 1 and np.isnan(s['f1'][1:]).all() and s['support'].tolist() == [2, 0, 0]

def test_one_class_cells():
    p = np.array([[.9, .1], [.8, .2]])
    assert m.macro_f1(p, [0, 0]) == 1 and m.accuracy(p, [0, 0]) == 1
    assert m.macro_f1(p, [1, 1]) == 0


# proper scores

@fast
@given(scored(min_n=1, zeros=False))
def test_nll_equals_sklearn(pg):
    p, g = pg
    assert m.nll(p, g) == pytest.approx(sk.log_loss(g, p, labels=range(p.shape[1])))

@fast
@given(scored(min_n=1))
def test_brier_equals_sklearn_and_loop(pg):
    p, g = pg
    loop = sum((p[i, j] - (j == g[i]))**2 for i, j in np.ndindex(p.shape)) / len(g)
    assert m.brier(p, g) == pytest.approx(loop)
    assert m.brier(p, g) == pytest.approx(sk.brier_score_loss(g, p, labels=range(p.shape[1]), scale_by_half=False))

def test_zero_probability_of_the_gold_option():
    p = np.array([[1., 0], [1, 0]])
    assert m.nll(p, [1, 0]) == pytest.approx(-math.log(m.FLOOR)/2)
    assert m.nll(p, [1, 0], floor=1e-3) == pytest.approx(-math.log(1e-3)/2)
    assert m.brier(p, [1, 1]) == 2
    assert math.isfinite(m.nll(p, [1, 1])) and m.nll(p, [0, 0]) == 0

@fast
@given(scored(min_n=1))
def test_log_score(pg):
    p, g = pg
    onehot = np.eye(p.shape[1])[g]
    assert m.log_score(p, onehot) == pytest.approx(m.nll(p, g))
    soft = (onehot + p)/2
    assert m.log_score(p, soft) >= m.log_score(soft, soft) - 1e-9      # the truth is the best forecast

def test_log_score_refuses_another_shape():
    with pytest.raises(ValueError, match='one shape'): m.log_score(np.ones((2, 2))/2, np.ones((2, 3))/3)


# calibration

def bin_of(c, bins): return next(b for b in range(bins) if b == bins - 1 or c <= (b + 1)/bins)

def ece_loop(conf, hit, bins):
    total = 0
    for b in range(bins):
        of = [(c, h) for c, h in zip(conf, hit) if bin_of(c, bins) == b]
        if of: total += len(of)/len(conf) * abs(sum(h for _, h in of)/len(of) - sum(c for c, _ in of)/len(of))
    return total

@fast
@given(answered(min_n=1), st.integers(1, 15))
def test_ece_equals_loop(a, bins):
    assert m.ece(*a[:2], bins) == pytest.approx(ece_loop(*a[:2], bins), abs=1e-12)

@fast
@given(answered(min_n=1), st.integers(1, 15))
def test_reliability_adds_up_to_ece(a, bins):
    r = m.reliability(*a[:2], bins)
    assert len(r['count']) == bins and r['count'].sum() == len(a[0])
    full = r['count'] > 0
    assert np.isnan(r['accuracy'][~full]).all() and np.isnan(r['confidence'][~full]).all()
    assert (r['count'][full]/len(a[0]) * abs(r['accuracy'][full] - r['confidence'][full])).sum() == pytest.approx(m.ece(*a[:2], bins), abs=1e-12)

def test_bin_edges_belong_to_the_lower_bin():
    assert m.reliability([.1, .2, .3, .7, 1, 0], [1]*6)['count'].tolist() == [2, 1, 1, 0, 0, 0, 1, 0, 0, 1]

def test_ece_noise_floor_equals_a_loop_over_the_same_draws():
    conf = np.random.default_rng(1).uniform(.34, 1, 57)
    draws = np.random.default_rng(5).random((300, 57)) < conf
    e = [ece_loop(conf.tolist(), h.tolist(), 10) for h in draws]
    assert m.ece_noise_floor(conf, n_sim=300, seed=5) == pytest.approx((np.mean(e), np.quantile(e, .95)), abs=1e-12)

def test_ece_noise_floor_agrees_with_another_simulation():
    conf = np.random.default_rng(2).uniform(.5, 1, 200)
    rng = np.random.default_rng(99)
    e = [m.ece(conf, rng.random(200) < conf) for _ in range(1500)]
    mean, high = m.ece_noise_floor(conf)
    assert mean == pytest.approx(np.mean(e), abs=.003) and high == pytest.approx(np.quantile(e, .95), abs=.006)
    assert mean > m.ece_noise_floor(np.tile(conf, 16))[0] * 3      # falls with the root of n

def test_certain_systems_have_no_noise():
    assert m.ece_noise_floor([1., 1, 1]) == (0, 0)


# selective prediction

def order_loop(conf, ids): return sorted(range(len(conf)), key=lambda i: (-conf[i], ids[i]))

@fast
@given(answered())
def test_order_by_confidence_then_id(a):
    conf, hit, ids = a
    assert m.by_confidence(conf, ids).tolist() == order_loop(conf, ids)
    assert m.by_confidence(conf).tolist() == sorted(range(len(conf)), key=lambda i: (-conf[i], i))

@fast
@given(answered(min_n=1))
def test_aurc_equals_brute_force(a):
    conf, hit, ids = a
    order, risks = order_loop(conf, ids), []
    for k in range(1, len(conf) + 1): risks.append(sum(not hit[i] for i in order[:k])/k)
    coverage, risk = m.risk_coverage(conf, hit, ids)
    assert coverage == pytest.approx([k/len(conf) for k in range(1, len(conf) + 1)]) and risk == pytest.approx(risks)
    assert m.aurc(conf, hit, ids) == pytest.approx(sum(risks)/len(risks))

@fast
@given(answered(min_n=1), st.integers(0, 20))
def test_selective_accuracy_equals_brute_force(a, twentieths):
    conf, hit, ids = a
    k = twentieths*len(conf)//20                       # floor(coverage · n) in whole numbers
    got = m.selective_accuracy(conf, hit, ids, twentieths/20)
    assert nan(got) if k == 0 else got == pytest.approx(sum(hit[i] for i in order_loop(conf, ids)[:k])/k)

@fast
@given(answered(min_n=1), st.randoms(use_true_random=False))
def test_order_of_the_file_does_not_matter(a, random):
    conf, hit, ids = a
    shuffled = list(range(len(conf))); random.shuffle(shuffled)
    for f in (m.aurc, m.selective_accuracy):
        assert f(conf[shuffled], hit[shuffled], ids[shuffled]) == pytest.approx(f(conf, hit, ids), nan_ok=True)

def test_published_coverage_is_257_of_322():
    hit = np.arange(322) < 254
    conf = np.linspace(1, .4, 322)
    assert m.selective_accuracy(conf, hit) == 254/257
    assert round(100*254/257, 1) == next(r for r in PAPER['table19_confidence'] if r['system'] == 'ml_all')['acc_at_80']

@pytest.mark.parametrize('coverage', [-.1, 1.1])
def test_coverage_must_be_a_share(coverage):
    with pytest.raises(ValueError, match='coverage'): m.selective_accuracy([.5], [True], coverage=coverage)

@fast
@given(answered(), st.sampled_from([0, .5, .9, 1]))
def test_confident_errors_equal_loop(a, t):
    assert m.confident_errors(*a[:2], t) == sum(c >= t and not h for c, h in zip(*a[:2]))


# groups

@fast
@given(answered(), st.integers(1, 5))
def test_group_accuracy_equals_loop(a, k):
    _, hit, _ = a
    groups = {f'g{j}': np.arange(j, len(hit), k) for j in range(k)} | {'empty': np.array([], dtype=int)}
    per = {g: (sum(bool(hit[i]) for i in ix), len(ix)) for g, ix in groups.items()}
    assert m.group_accuracy(hit, groups) == per
    shares = {g: r/n for g, (r, n) in per.items() if n}
    if not shares:
        assert nan(m.macro_accuracy(hit, groups)) and m.worst_group(hit, groups) is None
        return
    assert m.macro_accuracy(hit, groups) == pytest.approx(sum(shares.values())/len(shares))
    worst = next(g for g in shares if shares[g] == min(shares.values()))   # the first of the worst
    assert m.worst_group(hit, groups) == (worst, *per[worst])

def test_published_script_groups_weigh_to_the_total():
    root = {r['group']: (r['root'], r['n']) for r in PAPER['table12_script_group']}
    assert sum(n for _, n in root.values()) == 322
    assert sum(p*n for p, n in root.values())/322 == pytest.approx(61.2, abs=.5)


# nothing to measure, and arrays that are none

def test_no_items():
    p, g, c, h = np.zeros((0, 3)), np.zeros(0, dtype=int), np.zeros(0), np.zeros(0, dtype=bool)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for f in (m.accuracy, m.macro_f1, m.nll, m.brier): assert nan(f(p, g)), f
        for f in (m.ece, m.aurc, m.selective_accuracy): assert nan(f(c, h)), f
        assert nan(m.log_score(p, p)) and all(map(nan, m.ece_noise_floor(c)))
        assert m.confident_errors(c, h) == 0 and m.reliability(c, h)['count'].sum() == 0
        assert m.worst_group(h, {}) is None and nan(m.macro_accuracy(h, {})) and m.group_accuracy(h, {}) == {}
        assert len(m.risk_coverage(c, h)[0]) == 0 and m.decide(p).shape == m.confidence(p).shape == (0,)
        s = m.class_scores(g, g, 3)
    assert s['support'].tolist() == [0, 0, 0] and np.isnan(s['f1']).all()

def test_one_item():
    p, g = np.array([[.2, .8]]), np.array([1])
    assert (m.accuracy(p, g), m.macro_f1(p, g), m.aurc([.8], [True]), m.ece([.8], [True])) == (1, 1, 0, pytest.approx(.2))
    assert nan(m.selective_accuracy([.8], [True])) and m.selective_accuracy([.8], [True], coverage=1) == 1

@pytest.mark.parametrize('p, g, message', [([.5, .5], [0], r'\(n, k\)'), ([[.5, .5]], [0, 1], 'gold'), ([[.5, .5]], [2], r'0 … 1'), ([[.5, .5]], [-1], r'0 … 1')])
def test_wrong_shapes_are_refused(p, g, message):
    for f in (m.accuracy, m.macro_f1, m.nll, m.brier):
        with pytest.raises(ValueError, match=message): f(np.array(p), np.array(g))

# What is no number, and what does not belong together

@pytest.mark.parametrize('f', [m.accuracy, m.macro_f1, m.nll, m.brier, m.correct])
@pytest.mark.parametrize('bad', [math.nan, math.inf])
def test_a_row_without_numbers_is_never_right(f, bad):
    with pytest.raises(ValueError, match='row 1'): f([[.7, .3], [bad, .5]], [0, 0])

@pytest.mark.parametrize('gold', [[0, math.nan], [0, .5], [0, -1], [0, 2]])
def test_a_gold_option_is_a_position(gold):
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        with pytest.raises(ValueError, match='row 1'): m.accuracy([[.7, .3], [.5, .5]], np.array(gold))

PAIRED = [m.ece, m.reliability, m.aurc, m.risk_coverage, m.selective_accuracy, m.confident_errors]

@pytest.mark.parametrize('f', PAIRED)
@pytest.mark.parametrize('conf, hit', [([.95, .95], [0]), ([.5, .4], [1, 0, 1]), ([[.5, .4]], [[1, 0]]), ([.5], 1)])
def test_confidences_and_hits_belong_together(f, conf, hit):
    with pytest.raises(ValueError, match='one confidence and one right or wrong'): f(conf, hit)

@pytest.mark.parametrize('f', PAIRED)
@pytest.mark.parametrize('conf, hit, row', [([math.nan, .4], [1, 0], 0), ([.5, .4], [1, math.nan], 1)])
def test_a_confidence_is_a_number(f, conf, hit, row):
    with pytest.raises(ValueError, match=f'row {row}'): f(conf, hit)

def test_ids_are_one_each():
    with pytest.raises(ValueError, match='2 confidences need 2 ids, not 3'): m.aurc([.5, .4], [1, 0], ['a', 'b', 'c'])
    with pytest.raises(ValueError, match='row 0'): m.ece_noise_floor([math.nan])

@pytest.mark.parametrize('pred, gold', [([0], [0, 1]), ([0, 1], [0]), ([3], [0]), ([0], [math.nan])])
def test_class_scores_need_pairs_of_positions(pred, gold):
    with pytest.raises(ValueError): m.class_scores(pred, gold, 3)
