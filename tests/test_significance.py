"Tests, bootstraps, tiers and power against statsmodels, scipy, enumeration and plain loops over the same draws."
import math
from fractions import Fraction
from itertools import permutations
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from conftest import fast, few
from polyroute import significance as s
from polyroute.items import reference

PAPER = reference()
nan = math.isnan
counts = st.integers(0, 400)
p_values = st.lists(st.floats(0, 1) | st.sampled_from([0, .01, .02, .5, 1]), min_size=1, max_size=20)

def binom_p(b, c):
    "Two-sided exact p of b against c, in whole numbers."
    n = b + c
    return min(1., 2*sum(math.comb(n, i) for i in range(min(b, c) + 1))/2**n)

@st.composite
def hits(draw, min_n=1, max_n=25, min_s=1, max_s=5):
    n, k = draw(st.integers(min_n, max_n)), draw(st.integers(min_s, max_s))
    return np.array(draw(st.lists(st.lists(st.booleans(), min_size=k, max_size=k), min_size=n, max_size=n)), dtype=bool).reshape(n, k)


# exact McNemar and corrections

@fast
@given(counts, counts)
def test_mcnemar_equals_statsmodels(b, c):
    assert s.mcnemar_exact(b, c) == pytest.approx(mcnemar([[0, b], [c, 0]], exact=True).pvalue, rel=1e-9)
    assert s.mcnemar_exact(b, c) == s.mcnemar_exact(c, b)

def test_mcnemar_published_values():
    curve = {r['native_rows']: r['p'] for r in PAPER['table15_learning_curve']}
    assert round(s.mcnemar_exact(9, 6), 3) == curve[241] == .607
    assert round(s.mcnemar_exact(8, 2), 3) == curve[967] == .109
    assert s.mcnemar_exact(3, 0) == .25

def test_mcnemar_is_vectorised_and_without_discordance_1():
    p = s.mcnemar_exact(np.array([[0, 9], [8, 3]]), np.array([[0, 6], [2, 0]]))
    assert p.shape == (2, 2) and p[0, 0] == 1 and p.ravel().tolist() == [s.mcnemar_exact(b, c) for b, c in ((0, 0), (9, 6), (8, 2), (3, 0))]
    assert isinstance(s.mcnemar_exact(1, 2), float)

def test_mcnemar_refuses_negative_counts():
    with pytest.raises(ValueError, match='negative'): s.mcnemar_exact(-1, 3)

def holm_loop(p):
    "Step down by hand: the smallest p first, never below one before it."
    out, worst = [0.]*len(p), 0.
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        worst = max(worst, min(1., p[i]*(len(p) - rank)))
        out[i] = worst
    return out

@settings(max_examples=8, deadline=None)          # statsmodels takes a tenth of a second a call
@given(p_values)
def test_corrections_equal_statsmodels(p):
    assert s.holm(p) == pytest.approx(multipletests(p, method='holm')[1])
    assert s.bonferroni(p) == pytest.approx(multipletests(p, method='bonferroni')[1])

@fast
@given(p_values)
def test_holm_equals_loop(p):
    assert s.holm(p) == pytest.approx(holm_loop(p))
    assert (s.holm(p) <= s.bonferroni(p) + 1e-12).all() and (s.holm(p) >= np.array(p)).all()

def test_corrections_of_nothing():
    assert s.holm([]).shape == s.bonferroni([]).shape == (0,)

@fast
@given(hits())
def test_pairs_equal_loop(h):
    got, (n, k) = s.pairs(h), h.shape
    raw = {}
    for i in range(k):
        for j in range(k):
            b, c = sum(h[:, i] & ~h[:, j]), sum(h[:, j] & ~h[:, i])
            assert got.wins[i, j] == b and got.difference[i, j] == pytest.approx(h[:, i].mean() - h[:, j].mean()) and got.discordance[i, j] == pytest.approx((b + c)/n)
            assert got.p[i, j] == pytest.approx(binom_p(int(b), int(c)))
            if i < j: raw[i, j] = got.p[i, j]
    assert (np.diag(got.p_holm) == 1).all() and (got.p_holm == got.p_holm.T).all()
    if raw:
        for (i, j), q in zip(raw, holm_loop(list(raw.values()))): assert got.p_holm[i, j] == pytest.approx(q)

@pytest.mark.parametrize('bad', [[1, 0, 1], [[.5, 1]], [[2, 0]], [[math.nan, 1]]])
def test_only_right_and_wrong_are_taken(bad):
    for f in (s.pairs, s.tiers, s.rank_stability):
        with pytest.raises(ValueError): f(np.array(bad))


# resampling

@few
@given(st.integers(0, 30), st.integers(0, 5), st.data())
def test_resample_keeps_strata(n, seed, data):
    strata = np.array(data.draw(st.lists(st.sampled_from(['a', 'b', 'ü', '']), min_size=n, max_size=n)), dtype=object)
    w = s.resample(n, 50, seed, strata)
    assert w.shape == (50, n) and (w == np.rint(w)).all() and (w >= 0).all()
    for v in set(strata): assert (w[:, strata == v].sum(axis=1) == (strata == v).sum()).all()
    assert (w == s.resample(n, 50, seed, strata)).all()

@few
@given(st.integers(1, 30), st.data())
def test_resample_draws_clusters_whole(n, data):
    cluster = np.array(data.draw(st.lists(st.integers(0, 6), min_size=n, max_size=n)))
    stratum = cluster % 2
    for strata in (None, stratum):
        w = s.resample(n, 40, 1, strata, cluster)
        for c in set(cluster): assert (w[:, cluster == c] == w[:, cluster == c][:, :1]).all()
        first = np.array([np.flatnonzero(cluster == c)[0] for c in sorted(set(cluster))])      # one item stands for its cluster
        for v in set(stratum) if strata is not None else [None]:
            of = first if v is None else first[stratum[first] == v]
            assert (w[:, of].sum(axis=1) == len(of)).all()

def test_resample_without_strata_or_clusters_is_one_stratum_of_single_items():
    plain = s.resample(20, 30, 3)
    assert (plain == s.resample(20, 30, 3, strata=['x']*20)).all() and (plain == s.resample(20, 30, 3, clusters=[f'{i:02d}' for i in range(20)])).all()
    assert (plain != s.resample(20, 30, 4)).any()

def test_resample_is_a_bootstrap():
    w = s.resample(50, 4000, 0)
    assert w.mean(axis=0) == pytest.approx(np.ones(50), abs=.08) and w.var(axis=0) == pytest.approx(np.full(50, 49/50), abs=.12)

def test_a_cluster_in_two_strata_is_refused():
    with pytest.raises(ValueError, match='two strata'): s.resample(2, 5, 0, ['a', 'b'], ['c', 'c'])

def indices(w): return [np.repeat(np.arange(w.shape[1]), row.astype(int)) for row in w]

def percentiles(draws, conf):
    "Linear interpolation between order statistics, by hand."
    d, out = sorted(draws), []
    for q in ((1 - conf)/2, (1 + conf)/2):
        at = q*(len(d) - 1); k = int(at)
        out.append(d[k] + (at - k)*(d[min(k + 1, len(d) - 1)] - d[k]))
    return out

@few
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=15), st.booleans(), st.sampled_from([.8, .95]))
def test_bootstrap_mean_equals_loop_over_the_same_draws(x, clustered, conf):
    x = np.array(x)
    clusters = np.arange(len(x)) // 2 if clustered else None
    means = [float(np.mean(x[ix])) for ix in indices(s.resample(len(x), 100, 4, None, clusters))]
    assert s.bootstrap_mean(x, 100, 4, clusters=clusters, conf=conf) == pytest.approx((x.mean(), *percentiles(means, conf)), abs=1e-9)

def test_bootstrap_agrees_with_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.random(250) < .85, rng.random(250) < .75
    for ours, x in ((s.bootstrap_mean(a), a), (s.bootstrap_difference(a, b), a.astype(float) - b)):
        want = stats.bootstrap((x,), np.mean, n_resamples=4000, method='percentile', rng=np.random.default_rng(1)).confidence_interval
        assert ours.value == pytest.approx(x.mean()) and (ours.lo, ours.hi) == pytest.approx((want.low, want.high), abs=.012)

def test_a_paired_difference_needs_pairs():
    with pytest.raises(ValueError, match='same items'): s.bootstrap_difference([1, 0], [1])

def test_identical_systems_differ_by_nothing():
    assert s.bootstrap_difference([1, 0, 1], [1, 0, 1]) == (0, 0, 0)

@few
@given(st.integers(1, 24), st.integers(1, 4), st.data())
def test_bootstrap_macro_equals_loop_over_the_same_draws(n, k, data):
    x = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=float)
    label = np.array(data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)))
    groups = {g: np.flatnonzero(label == g) for g in range(k)}
    full = [ix for ix in groups.values() if len(ix)]
    where = np.concatenate(full)
    stratum = np.repeat(np.arange(len(full)), [len(ix) for ix in full])
    macros = [float(np.mean([np.mean(x[where[ix]][stratum[ix] == g]) for g in range(len(full))])) for ix in indices(s.resample(n, 60, 2, stratum))]
    value = np.mean([x[ix].mean() for ix in full])
    assert s.bootstrap_macro(x, groups, 60, 2) == pytest.approx((value, *percentiles(macros, .95)), abs=1e-9)

def test_bootstrap_macro_needs_disjoint_groups():
    with pytest.raises(ValueError, match='two groups'): s.bootstrap_macro([1, 0], {'a': np.array([0, 1]), 'b': np.array([1])})

def test_nothing_to_resample():
    for e in (s.bootstrap_mean([]), s.bootstrap_macro([], {}), s.bootstrap_macro([1.], {'a': np.array([], dtype=int)}), s.bootstrap_difference([], [])): assert all(map(nan, e))
    assert s.resample(0, 7).shape == (7, 0)


# ranks and tiers

def ranks_loop(h, w, conf=Fraction(95, 100)):
    "Mean rank, share of places and rank interval by a loop over the resamples, in exact fractions."
    k, boots = h.shape[1], len(w)
    mean, share = [Fraction(0)]*k, [[Fraction(0)]*k for _ in range(k)]
    for ix in indices(w):
        right = [int(sum(h[ix, j])) for j in range(k)]
        for i in range(k):
            better, equal = sum(r > right[i] for r in right), sum(r == right[i] for r in right)
            mean[i] += better + Fraction(equal + 1, 2)
            for place in range(better, better + equal): share[i][place] += Fraction(1, equal)
    share = [[x/boots for x in row] for row in share]
    first = lambda row, ok: next(p + 1 for p in range(k) if ok(sum(row[:p + 1])))
    lo = [first(r, lambda c: c > (1 - conf)/2) for r in share]
    hi = [first(r, lambda c: c >= (1 + conf)/2) for r in share]
    return [x/boots for x in mean], lo, hi, share

@few
@given(hits(max_n=15), st.integers(0, 3), st.booleans())
def test_rank_stability_equals_loop(h, seed, clustered):
    clusters = np.arange(len(h)) // 2 if clustered else None
    mean, lo, hi, share = ranks_loop(h, s.resample(len(h), 80, seed, None, clusters))
    got = s.rank_stability(h, 80, seed, clusters=clusters)
    assert got.mean.tolist() == [float(x) for x in mean]                # the same numbers, not close ones
    assert (got.lo.tolist(), got.hi.tolist()) == (lo, hi)
    assert got.share == pytest.approx(np.array(share, dtype=float), abs=1e-12)

def test_rank_stability_at_the_size_of_the_paper():
    rng = np.random.default_rng(0)
    h = rng.random((322, 13)) < np.linspace(.97, .6, 13)
    w = s.resample(322, 150, 0)
    mean, lo, hi, share = ranks_loop(h, w)
    got = s.rank_stability(h, 150)
    assert got.mean.tolist() == [float(x) for x in mean] and (got.lo.tolist(), got.hi.tolist()) == (lo, hi)
    assert got.share.sum(axis=0) == pytest.approx(np.ones(13)) and got.share.sum(axis=1) == pytest.approx(np.ones(13))

def test_one_system_holds_the_first_place():
    r = s.rank_stability(np.array([[1], [0]], dtype=bool), 20)
    assert (r.mean.tolist(), r.lo.tolist(), r.hi.tolist(), r.share.tolist()) == ([1], [1], [1], [[1]])

def test_no_system_and_no_item():
    r = s.rank_stability(np.zeros((5, 0), dtype=bool), 20)               # a board of nobody is no error
    assert r.mean.shape == r.lo.shape == r.hi.shape == (0,) and r.share.shape == (0, 0)
    assert s.tiers(np.zeros((5, 0), dtype=bool)).shape == (0,) and s.pairs(np.zeros((5, 0), dtype=bool)).p.shape == (0, 0)
    assert s.rank_stability(np.zeros((0, 3), dtype=bool), 20).mean.tolist() == [2, 2, 2]
    assert s.tiers(np.zeros((0, 3), dtype=bool)).tolist() == [1, 1, 1]

def tiers_loop(h, alpha):
    n, k = h.shape
    pair = [(i, j) for i in range(k) for j in range(i + 1, k)]
    p = [binom_p(int((h[:, i] & ~h[:, j]).sum()), int((h[:, j] & ~h[:, i]).sum())) for i, j in pair]
    apart = {frozenset(ij) for ij, q in zip(pair, holm_loop(p)) if q < alpha}
    left, tier, t = sorted(range(k), key=lambda i: (-h[:, i].sum(), i)), [0]*k, 0
    while left:
        t += 1
        leader = left[0]
        members = [i for i in left if i == leader or frozenset((leader, i)) not in apart]
        for i in members: tier[i] = t
        left = [i for i in left if i not in members]
    return tier

@st.composite
def spread(draw):
    "Systems of very different accuracy, so that there are several tiers."
    k, n = draw(st.integers(1, 6)), draw(st.integers(1, 80))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return rng.random((n, k)) < np.array(draw(st.lists(st.sampled_from([0, .2, .5, .6, .9, 1]), min_size=k, max_size=k)))

@fast
@given(spread(), st.sampled_from([.01, .07, .3]))
def test_tiers_equal_brute_force(h, alpha):
    assert s.tiers(h, alpha).tolist() == tiers_loop(h, alpha)

def test_tiers_do_not_chain():
    n = 200
    h = np.array([[i < 190, i < 180, i < 168] for i in range(n)])
    p = s.pairs(h).p_holm
    assert p[0, 1] < .01 and p[1, 2] < .01 and s.tiers(h).tolist() == [1, 2, 3]
    h = np.array([[i < 190, i < 184, i < 178] for i in range(n)])        # neighbours cannot be told apart, the ends can
    p = s.pairs(h).p_holm
    assert p[0, 1] > .01 and p[1, 2] > .01 and p[0, 2] < .01 and s.tiers(h).tolist() == [1, 1, 2]

@few
@given(spread(), st.randoms(use_true_random=False))
def test_tiers_do_not_depend_on_the_order_of_the_systems(h, random):
    if len(set(h.sum(axis=0).tolist())) < h.shape[1]: return              # ties go to the first column, by definition
    order = list(range(h.shape[1])); random.shuffle(order)
    assert s.tiers(h[:, order]).tolist() == s.tiers(h)[order].tolist()


# power

def power_loop(n, discordance, difference, alpha):
    "Every possible table of n items, weighed by its multinomial probability."
    b, c = (discordance + difference)/2, (discordance - difference)/2
    total = 0
    for x in range(n + 1):
        for y in range(n - x + 1):
            if x + y and binom_p(x, y) <= alpha:
                total += math.comb(n, x)*math.comb(n - x, y) * b**x * c**y * (1 - b - c)**(n - x - y)
    return total

@few
@given(st.integers(1, 14), st.sampled_from([.1, .37, .5, .8, 1]), st.sampled_from([0, .25, .6, 1]), st.sampled_from([.01, .06, .3]))
def test_power_equals_enumeration(n, discordance, share, alpha):
    assert s.mcnemar_power(n, discordance, discordance*share, alpha) == pytest.approx(power_loop(n, discordance, discordance*share, alpha), abs=1e-9)

def test_power_of_nothing():
    assert s.mcnemar_power(0, .5, .1) == 0 and s.mcnemar_power(100, 0, 0) == 0
    assert s.mcnemar_power(10**6, .3, .3) == pytest.approx(1)

@pytest.mark.parametrize('discordance, difference', [(.1, .2), (1.2, .1), (.1, -.1)])
def test_power_refuses_impossible_shares(discordance, difference):
    with pytest.raises(ValueError, match='difference <= discordance'): s.mcnemar_power(100, discordance, difference)

@pytest.mark.parametrize('n', [26, 64, 156, 322])
def test_published_table_8(n):
    t = PAPER['table8_minimum_detectable_difference_points']
    got = s.detectable_difference(n, np.array(t['discordance']), t['alpha'], t['power'])
    assert [round(100*x, 1) for x in got] == t['rows'][str(n)]

@pytest.mark.parametrize('n, discordance', [(322, .06), (156, .25), (1000, .03), (64, .25)])
def test_exact_detectable_difference_is_the_smallest(n, discordance):
    d = s.detectable_difference_exact(n, discordance)
    assert s.mcnemar_power(n, discordance, d) >= .8 > s.mcnemar_power(n, discordance, d - 1e-5)

def test_a_very_small_level_is_a_level():
    assert s.detectable_difference(322, .06, alpha=1e-20) > s.detectable_difference(322, .06, alpha=1e-10)

def test_too_few_items_detect_nothing():
    assert nan(s.detectable_difference_exact(26, .03)) and nan(s.detectable_difference_exact(7, 1)) and not nan(s.detectable_difference_exact(8, 1))

@pytest.mark.parametrize('difference, discordance', [(.5, .5), (.3, .5), (.25, .25), (.2, .3), (1, 1)])
def test_items_needed_equals_a_scan(difference, discordance):
    last = max((n for n in range(1, 250) if s.mcnemar_power(n, discordance, difference) < .8), default=0)
    assert s.items_needed(difference, discordance) == last + 1

def test_items_needed_keeps_its_limit():
    assert s.items_needed(.001, .3, limit=1000) is None
    assert s.items_needed(.01, .01, limit=1000) is None          # 1,022 are needed
    assert s.items_needed(.01, .01) == 1022

@pytest.mark.parametrize('difference, discordance', [(0, .1), (.2, .1), (-.1, .1)])
def test_items_needed_refuses(difference, discordance):
    with pytest.raises(ValueError): s.items_needed(difference, discordance)


# Spearman

pairs_of = lambda lo, hi: st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=lo, max_size=hi)

@fast
@given(pairs_of(2, 30))
def test_rho_equals_scipy(xy):
    x, y = map(list, zip(*xy))
    got = s.spearman_permutation(x, y, n_perm=20)
    if len(set(x)) == 1 or len(set(y)) == 1: assert nan(got.rho) and nan(got.p)
    else: assert got.rho == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)

def p_loop(x, y):
    x, y = stats.rankdata(x), stats.rankdata(y)
    rho = lambda z: float(np.corrcoef(x, z)[0, 1])
    at = abs(rho(y))
    return np.mean([abs(rho(np.array(z))) >= at - 1e-9 for z in permutations(y)])

@few
@given(pairs_of(2, 5))
def test_exact_p_equals_brute_force(xy):
    x, y = map(list, zip(*xy))
    if len(set(x)) > 1 and len(set(y)) > 1: assert s.spearman_permutation(x, y).p == pytest.approx(p_loop(x, y))
    else: assert nan(s.spearman_permutation(x, y).p)

def test_exact_p_with_seven_values():
    y = [3, 3, 1, 7, 2, 2, 5]
    assert s.spearman_permutation(range(7), y).p == pytest.approx(p_loop(range(7), y))

def test_random_permutations_agree_with_scipy():
    rng = np.random.default_rng(3)
    x = rng.normal(size=12); y = x + rng.normal(size=12)*2
    want = stats.spearmanr(x, y)
    assert s.spearman_permutation(x, y).p == pytest.approx(want.pvalue, abs=.02)
    assert s.spearman_permutation(x, y) == s.spearman_permutation(x, y)

def test_spearman_without_an_answer():
    for x, y in (([], []), ([1], [2]), ([1, 1, 1], [1, 2, 3])): assert all(map(nan, s.spearman_permutation(x, y)))
    with pytest.raises(ValueError, match='pairs'): s.spearman_permutation([1, 2], [1, 2, 3])

def test_a_missing_value_is_not_a_rank():
    "A language without items has accuracy nan: it must not count as the largest value."
    try: got = s.spearman_permutation([1, 2, math.nan, 4], [1, 2, 3, 4])
    except ValueError: return
    assert nan(got.rho) and nan(got.p)

# Counts that are none

@pytest.mark.parametrize('kind', [np.uint8, np.int8, np.uint64, float])
def test_any_type_of_number_gives_the_same_p(kind):
    for b, c in ((200, 100), (100, 120), (0, 5)):
        if np.can_cast(np.min_scalar_type(max(b, c)), kind) or kind is float: assert s.mcnemar_exact(kind(b), kind(c)) == s.mcnemar_exact(np.array([b], kind), np.array([c], kind))[0] == s.mcnemar_exact(b, c)

@pytest.mark.parametrize('b', [-1, .5, math.nan, math.inf])
def test_mcnemar_counts_items(b):
    with pytest.raises(ValueError, match='whole numbers'): s.mcnemar_exact(b, 3)

@pytest.mark.parametrize('n', [-5, 1.5, math.nan])
def test_power_needs_a_number_of_items(n):
    with pytest.raises(ValueError, match='number of items'): s.mcnemar_power(n, .1, .05)
    with pytest.raises(ValueError, match='number of items'): s.detectable_difference_exact(n, .1)
