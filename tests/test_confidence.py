"Confidence: brute-force oracles for its measures, recovered temperatures, simulated guarantees, and rows that a system has not seen."
import json
from dataclasses import replace
from itertools import product
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from polyroute import confidence as c
from polyroute import cli, embedding, metrics, significance, tracks
from polyroute.items import DEPARTMENT, TWELVE, DataError, Dataset, Item, Question, load, read_items, write_jsonl
from polyroute.leaderboard import read_board
from polyroute.predictions import Predictions, header_for, write_predictions
from polyroute.systems import Card, evaluate, read_card
from conftest import Toy, even, fast, few, gold_of, right_on, selection, toy_data, toy_items

SEVEN = Question('queue', 'choice', 'Which queue?', tuple((f'q{i}', f'queue {i}') for i in range(7)))
LEVELS = Question('urgency', 'score', 'How urgent?', tuple((str(i), f'level {i}') for i in range(4)))


def made(probs, gold, question=DEPARTMENT, meta=lambda i: {'language': TWELVE[i % 3]}, **header):
    "Predictions with these probabilities on items with these gold options."
    items = [Item(f'i{n}', f'text {n}', question, question.options[g], None, meta(n)) for n, g in enumerate(gold)]
    data = Dataset('made', items, 'x')
    return Predictions(header_for('made', data, **header), data, np.asarray(probs, dtype=float))


def simulated(n, k=3, temperature=1., seed=0, **kw):
    "Predictions whose confidences are right once their logits are divided by the temperature."
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, k))*2.5
    true = embedding.softmax(z / temperature)
    return made(embedding.softmax(z), (true.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1), **kw)


# calibration error

@few
@given(st.integers(1, 40), st.integers(0, 10**6))
def test_ece_interval_resamples_items(n, seed):
    rng = np.random.default_rng(seed)
    conf, hit = rng.random(n)*.7 + .3, rng.random(n) < .6
    e = c.ece_interval(conf, hit, n_boot=60, seed=3)
    w = significance.resample(n, 60, 3).astype(int)
    draws = [metrics.ece(np.repeat(conf, r), np.repeat(hit, r)) for r in w]
    top, inside = np.quantile(draws, .975), e.value <= metrics.ece_noise_floor(conf, seed=3)[1]
    assert e.value == metrics.ece(conf, hit)
    assert e.lo == pytest.approx(0 if inside else max(0, 2*e.value - top)) and e.hi == pytest.approx(max(e.value, top))
    assert 0 <= e.lo <= e.value <= e.hi


@pytest.mark.parametrize('off', [0., .06, .15])
def test_ece_interval_covers_the_true_error(off):
    rng, inside, runs = np.random.default_rng(1), 0, 100
    for _ in range(runs):
        conf = (1 + 2*rng.beta(3, 1, 200))/3
        e = c.ece_interval(conf, rng.random(200) < conf - off, n_boot=200)
        inside += e.lo <= off <= e.hi
    assert inside >= stats.binom.ppf(1e-3, runs, .95)


def test_gain_is_paired():
    rows, p = simulated(300, temperature=2, seed=4), simulated(80, temperature=2, seed=5)
    g = c.temperature_gain(rows, p, n_boot=80, seed=2)
    three = [p, c.rescale(p, g.temperatures, False), c.rescale(p, g.temperatures)]
    loss = [-np.log(q.probs[np.arange(80), q.gold]) for q in three]
    for step, a, b in ((g.nll_one, 0, 1), (g.nll_group, 1, 2)):
        assert step == pytest.approx(significance.bootstrap_difference(loss[b], loss[a], n_boot=80, seed=2, clusters=p.data.clusters))
    for step, a, b in ((g.ece_one, 0, 1), (g.ece_group, 1, 2)):
        again = [[metrics.ece(np.repeat(three[i].conf, r), np.repeat(p.hit, r)) for r in significance.resample(80, 80, 2, clusters=p.data.clusters).astype(int)] for i in (a, b)]
        assert step == pytest.approx((g.ece[b] - g.ece[a], *np.quantile(np.subtract(again[1], again[0]), [.025, .975])))


# groups

def outcomes(conf):
    "Number right and probability of every outcome of independent coins."
    for hits in product((0, 1), repeat=len(conf)): yield sum(hits), float(np.prod([x if h else 1 - x for x, h in zip(conf, hits)]))


@fast
@given(st.lists(st.floats(0, 1, width=16), min_size=1, max_size=7), st.data())
def test_calibration_p_counts_outcomes(conf, data):
    hit = data.draw(st.lists(st.booleans(), min_size=len(conf), max_size=len(conf)))
    chance = np.zeros(len(conf) + 1)
    for k, p in outcomes(conf): chance[k] += p
    assert c.calibration_p(conf, hit) == pytest.approx(min(1, chance[chance <= chance[sum(hit)]*(1 + 1e-7) + 1e-15].sum()), abs=1e-9)


@fast
@given(st.lists(st.floats(.0625, .9375, width=16), min_size=1, max_size=7), st.sampled_from([.01, .05, .2]))
def test_calibration_p_is_valid(conf, alpha):
    hits = [np.arange(len(conf)) < k for k in range(len(conf) + 1)]
    p = [c.calibration_p(conf, h) for h in hits]
    assert sum(chance for k, chance in outcomes(conf) if p[k] <= alpha) <= alpha + 1e-9


def test_thirty_items_say_nothing_of_a_small_gap_and_much_of_a_large_one():
    hit = [n % 30 >= 2 for n in range(60)]                                          # 28 of 30 right
    probs = [[.97, .02, .01] if n < 30 else [.5, .3, .2] for n in range(60)]
    p = made(probs, [0 if h else 1 for h in hit], meta=lambda i: {'language': 'de' if i < 30 else 'ta'})
    de, ta = c.calibration_by(p)
    assert (de.verdict, ta.verdict) == ('not told apart', 'under-confident')
    assert de.gap.lo < 0 < de.gap.hi and ta.gap.hi < 0
    said = c.calibration_warning([de, ta])
    assert '1 of 2 groups are told apart' in said and 'Tamil under-confident' in said and 'German' not in said


def test_a_group_with_one_department_and_an_empty_group():
    p = made(np.tile([.8, .1, .1], (6, 1)), [0, 0, 0, 1, 2, 0], meta=lambda i: {'language': 'de'} if i < 3 else {'language': 'hi'} if i < 5 else {})
    found = {g.group: g for g in c.calibration_by(p)}
    assert set(found) == {'de', 'hi'} and found['de'].accuracy.value == 1 and found['hi'].accuracy.value == 0
    assert c.calibration_by(p.select(np.array([5]))) == [] and c.calibration_by(p.select(np.zeros(6, bool))) == []
    empty = p.select(np.zeros(6, bool))
    s = c.confidence_scores(empty)
    row = c.confidence_row('Empty', s)
    assert (s.items, s.errors) == (0, 0) and row['Accuracy [95% CI]'] == '–' and set(row.values()) - {'Empty', '–', 'n/a'} == set()


def test_a_system_without_probabilities_has_no_confidence():
    p = made(np.eye(3)[[0, 1, 2, 1]], [0, 1, 2, 0], labels_only=True)
    row = c.confidence_row('Labels', c.confidence_scores(p))
    assert row['Accuracy [95% CI]'].startswith('75.0') and {v for k, v in row.items() if k not in ('System', 'Accuracy [95% CI]')} == {'n/a'}
    assert c.reliability_bins(p) == [] and c.calibration_by(p) == []


def test_bins_hold_every_item_once():
    p = simulated(97, seed=8)
    found = c.reliability_bins(p)
    assert sum(b.items for b in found) == 97
    assert sum(b.items*b.accuracy.value for b in found) == pytest.approx(p.hit.sum())
    assert sum(b.items*abs(b.accuracy.value - b.confidence) for b in found)/97 == pytest.approx(metrics.ece(p.conf, p.hit))


# temperatures

@few
@given(st.integers(5, 60), st.integers(0, 10**6))
def test_best_temperature_is_the_optimisers(n, seed):
    p = simulated(n, seed=seed)
    assume(not p.hit.all())
    best = c.fit_temperatures(p).one
    free = embedding.fit_temperature(c.log_probabilities(p), p.gold)
    assume(1/19 < free < 19)
    assert best == pytest.approx(free, rel=.03)


@pytest.mark.parametrize('temperature', [.5, 1., 2.])
def test_a_known_temperature_is_recovered(temperature):
    p = simulated(2400, temperature=temperature, seed=5)
    t = c.fit_temperatures(p)
    assert t.one == pytest.approx(temperature, rel=.12) and t.rows == {g: 800 for g in ('de', 'pt', 'es')}
    assert all(v == pytest.approx(temperature, rel=.2) for v in t.by.values())
    assert metrics.ece(c.rescale(p, t).conf, p.hit) < .03


def test_rows_without_an_error_give_no_temperature():
    right = made(np.tile([.6, .3, .1], (9, 1)), [0]*9)
    t = c.fit_temperatures(right)
    assert (t.one, set(t.by.values())) == (None, {None})
    assert c.rescale(right, t).probs == pytest.approx(right.probs)          # left as they are
    flat = made(np.full((9, 3), 1/3), [0, 1, 2]*3)
    assert c.fit_temperatures(flat).one is None
    nearly = c.temperature_losses(np.log(np.full((9, 3), 1/3)) + 1e-16*np.arange(3), np.zeros(9, int)).sum(axis=0)
    assert np.argmin(nearly) > 0 and c.best_temperature(nearly) == 0        # rounding is no optimum


@fast
@given(st.integers(2, 30), st.integers(0, 10**6), st.floats(.06, 18))
def test_a_temperature_changes_no_decision(n, seed, t):
    p = simulated(n, seed=seed)
    q = c.rescale(p, c.Temperatures(t, {'de': 1/t}, {'de': 1}, 'language'))
    assert (metrics.decide(q.probs) == metrics.decide(p.probs)).all() and q.probs.sum(axis=1) == pytest.approx(np.ones(n))


def test_a_group_has_its_own_temperature_and_others_the_common_one():
    p = made(np.tile([.6, .3, .1], (4, 1)), [0, 1, 0, 0], meta=lambda i: [{'language': 'de'}, {'language': 'ta'}, {'variety': 'hinglish'}, {}][i])
    q = c.rescale(p, c.Temperatures(2., {'de': 3., 'ta': None}, {}, 'language'))
    at = lambda t: embedding.softmax(np.log(p.probs[:1])/t)[0]
    assert [row.tolist() for row in q.probs] == [pytest.approx(at(t)) for t in (3, 2, 2, 2)]


def test_gain_is_measured_on_the_split_and_fitted_on_the_rows_alone():
    rows, p = simulated(900, temperature=2, seed=1), simulated(400, temperature=2, seed=2)
    g = c.temperature_gain(rows, p, n_boot=200)
    assert g.temperatures == c.fit_temperatures(rows) and g.reached == 400
    assert g.nll == pytest.approx([metrics.nll(q.probs, p.gold) for q in (p, c.rescale(p, g.temperatures, False), c.rescale(p, g.temperatures))])
    assert g.nll_one.hi < 0 and g.ece_one.hi < 0 and g.nll_group.value == pytest.approx(g.nll[2] - g.nll[1])
    other = replace(p, data=p.data.select(np.arange(400)))
    other.data.items = [replace(i, gold=DEPARTMENT.options[0]) for i in other.data.items]
    assert c.temperature_gain(rows, other, n_boot=20).temperatures == g.temperatures       # other answers, same temperatures


def test_a_split_without_the_rows_groups_gets_one_temperature_only():
    rows, p = simulated(200, seed=1), simulated(60, seed=2, meta=lambda i: {'variety': 'hinglish'})
    g = c.temperature_gain(rows, p, n_boot=50)
    assert g.reached == 0 and np.isnan([g.nll_group.value, g.ece_group.value]).all() and np.isfinite([g.nll_one.value, g.ece_one.value]).all()
    assert c.rows_curve(rows, p, samples=3).points == []
    assert 'no item is in a group' in c.gain_sentence('Mixed', {'a': g})


def test_soft_rows_give_no_temperature():
    p = simulated(6)
    p.data.items[2] = replace(p.data.items[2], gold=None, soft={o: 1/3 for o in DEPARTMENT.options})
    with pytest.raises(DataError, match='without a gold answer'): c.fit_temperatures(p)


def test_rows_curve_is_what_a_loop_gives():
    rows, p = simulated(90, temperature=1.7, seed=3), simulated(45, temperature=1.7, seed=4)
    curve = c.rows_curve(rows, p, sizes=(2, 7, 30), samples=4, seed=9)
    rng, groups = np.random.default_rng(9), rows.data.groups('language')
    orders = {g: [rng.permutation(30) for _ in range(4)] for g in groups}
    for point, n in zip(curve.points, (2, 7, 30)):
        own, one = [], []
        for s in range(4):
            some = np.concatenate([ix[orders[g][s][:n]] for g, ix in groups.items()])
            t = c.fit_temperatures(rows.select(some))
            own.append(metrics.nll(c.rescale(p, t).probs, p.gold)); one.append(metrics.nll(c.rescale(p, t, False).probs, p.gold))
        assert (point.rows, point.group.value, point.one.value) == (n, pytest.approx(np.mean(own)), pytest.approx(np.mean(one)))
        assert (point.group.lo, point.group.hi) == pytest.approx(tuple(np.quantile(own, [.025, .975])))
    assert (curve.raw, curve.items, curve.groups) == (pytest.approx(metrics.nll(p.probs, p.gold)), 45, 3)


@fast
@given(st.lists(st.floats(0, 2), min_size=1, max_size=7), st.floats(0, 2))
def test_rows_needed_is_the_first_size_that_stays(losses, level):
    points = [c.RowsPoint(n + 1, significance.Estimate(l, l, l), significance.NOTHING) for n, l in enumerate(losses)]
    stays = [n + 1 for n in range(len(losses)) if all(l <= level for l in losses[n:])]
    assert c.rows_needed(c.RowsCurve(1., 1, 1, points), level) == min(stays, default=None)


# any question

@pytest.mark.parametrize('question', [SEVEN, LEVELS], ids=['seven', 'score'])
def test_any_question_goes_through(question):
    k = len(question.options)
    rows, p = (simulated(n, k=k, temperature=1.5, seed=s, question=question) for n, s in ((300, 1), (120, 2)))
    assert c.confidence_row('S', c.confidence_scores(p))['NLL'] != 'n/a' and c.calibration_by(p) and c.reliability_bins(p)
    assert c.temperature_gain(rows, p, n_boot=50).reached == 120 and c.rows_curve(rows, p, samples=3).points
    x = c.certified_threshold(rows.conf, rows.hit, .5)
    assert 0 < c.answered(p, x.threshold).coverage <= 1


def test_questions_of_different_width_share_a_file():
    items = [Item(f'i{n}', f't{n}', q, q.options[0], None, {'language': 'de'}) for n, q in enumerate([SEVEN, DEPARTMENT, SEVEN, DEPARTMENT])]
    probs = np.zeros((4, 7))
    probs[::2], probs[1::2, :3] = 1/7 + np.array([.06, *[-.01]*6]), [.2, .5, .3]
    data = Dataset('two', items, 'x')
    p = Predictions(header_for('s', data), data, probs)
    q = c.rescale(p, c.Temperatures(20., {}, {}, 'language'))
    assert (q.probs[1::2, 3:] == 0).all() and q.probs.sum(axis=1) == pytest.approx(np.ones(4))


def test_same_accuracy_is_fishers():
    a, b = made(np.tile([.8, .1, .1], (40, 1)), [0]*30 + [1]*10), made(np.tile([.8, .1, .1], (50, 1)), [0]*25 + [1]*25)
    assert c.same_accuracy_p(a, b) == pytest.approx(stats.fisher_exact([[30, 10], [25, 25]])[1]) and c.same_accuracy_p(a, a) == pytest.approx(1)


def crowd(n, systems, rng, easier=0., shared=2., clusters=None):
    "What systems that share their texts make of them: a text's difficulty is the same for all."
    d = shared*rng.normal(size=n)
    if clusters is not None: d = d[clusters]
    hit = d[:, None] + rng.normal(size=(n, systems)) < 1.5 + easier
    meta = (lambda i: {}) if clusters is None else (lambda i: {'cluster': f'c{clusters[i]}'})
    return {f's{j}': made(np.where(hit[:, [j]], [.8, .1, .1], [.1, .8, .1]), [0]*n, meta=meta) for j in range(systems)}


def test_hardness_is_the_mean_over_the_systems():
    rng = np.random.default_rng(0)
    rows, items = crowd(60, 4, rng), crowd(50, 4, rng)
    rows = {s: p.select(np.arange(20 + 10*n)) for n, (s, p) in enumerate(rows.items())}         # each system on rows of its own
    h = c.hardness(rows | {'x': rows['s0']}, items, n_boot=400)
    each = [rows[s].hit.mean() - items[s].hit.mean() for s in items]
    assert (h.systems, h.lower) == (4, sum(d < 0 for d in each)) and h.difference.value == pytest.approx(np.mean(each)) and h.difference.lo < h.difference.value < h.difference.hi
    assert h.alone == sum(stats.fisher_exact([[q.hit.sum(), (~q.hit).sum()] for q in (rows[s], items[s])])[1] < .05 for s in items)


def test_hardness_resamples_texts_for_all_systems_at_once():
    "Its interval is that of a plain loop over resampled texts, and not that of systems that have texts of their own."
    rng = np.random.default_rng(1)
    rows, items = crowd(80, 12, rng), crowd(80, 12, rng)
    h, draw = c.hardness(rows, items, n_boot=1500), np.random.default_rng(5)
    hit = [np.array([p.hit for p in d.values()]).T for d in (rows, items)]
    loop = [a[draw.integers(80, size=80)].mean() - b[draw.integers(80, size=80)].mean() for a, b in [hit]*1500]
    assert (h.difference.lo, h.difference.hi) == pytest.approx(np.quantile(loop, [.025, .975]), abs=.02)
    apart = [np.mean([a[draw.integers(80, size=80), j].mean() - b[draw.integers(80, size=80), j].mean() for j in range(12)]) for a, b in [hit]*300]
    assert h.difference.hi - h.difference.lo > 1.5*np.ptp(np.quantile(apart, [.025, .975]))


@pytest.mark.parametrize('clustered', [False, True])
def test_hardness_rejects_as_often_as_it_says(clustered):
    rng, runs = np.random.default_rng(2), 80
    groups = np.repeat(np.arange(30), 3) if clustered else None
    p = [c.hardness(crowd(90, 6, rng, clusters=groups), crowd(90, 6, rng, clusters=groups), n_boot=200).p for _ in range(runs)]
    assert sum(x < .05 for x in p) <= stats.binom.ppf(.999, runs, .05)


def test_a_pattern_that_runs_through_all_systems_is_seen_where_holm_sees_none():
    rng = np.random.default_rng(3)
    rows, items = crowd(400, 20, rng, easier=-.25, shared=.6), crowd(300, 20, rng, shared=.6)
    h = c.hardness(rows, items)
    alone = significance.holm([c.same_accuracy_p(rows[s], items[s]) for s in rows])
    assert min(alone) > .05 and h.p < .05 and h.lower >= 18 and h.difference.hi < 0
    said = c.hardness_sentence(h)
    assert f'{h.lower} of 20 systems are right less often' in said and f'{100*h.difference.value:+.1f} points' in said and f'{h.alone} differ' in said
    assert 'look harder' in c.hardness_reading(h) and 'careful' in c.hardness_reading(h)
    assert 'look easier' in c.hardness_reading(c.hardness(items, rows)) and 'bold' in c.hardness_reading(c.hardness(items, rows))
    same = c.hardness_reading(c.hardness(items, items))
    assert 'not separated' in same and 'equally' not in same
    assert c.hardness_sentence(c.hardness({}, items)).startswith('No system') and 'not known' in c.hardness_reading(c.hardness({}, {}))


def test_an_impossible_p_is_never_printed():
    h = c.Hardness(3, 3, 3, significance.Estimate(-.1, -.2, -.05), 1e-9)
    assert 'p < 0.001' in c.hardness_sentence(h)


def test_how_the_system_was_chosen_is_said(board_home):
    b = read_board('ml_test')
    assert c.closely_sentence(b).startswith(f'{b.cards[0].name} is looked at closely: the most accurate on the native split, so chosen by the very items')
    selection(board_home, 'middle')
    said = c.closely_sentence(read_board('ml_test'))
    assert said.startswith('MIDDLE is looked at closely on every split') and 'held out' in said and said.endswith(f'By accuracy it is number {b.slugs.index("middle") + 1} of 5 on the native split.')
    assert c.closely_sentence(read_board('mix_test')).startswith('MIDDLE is looked at closely on every split')
    assert c.closely_sentence(replace(b, cards=[], predictions=[])).startswith('No system is better than the commonest answer')


def test_counterparts_that_learned_nothing_are_named(board_home):
    evaluate(Toy('constant', predict=lambda t, q: np.tile([.8, .1, .1], (len(t), 1))), load('ml_test'))
    b = read_board('ml_test')
    said = c.unlearned_sentence(b, ['best', 'constant', 'not-frozen'])
    lo, hi = metrics.wilson(80, 240)
    assert 'commonest answer (33.3): CONSTANT (33.3 [' in said and f'{100*lo:.1f}' in said and 'learned nothing' in said and 'BEST' not in said
    assert c.unlearned_sentence(b, ['best', 'not-frozen', 'second']).startswith('2 of 2 of them are better')


def test_who_has_a_confidence():
    p = [made(probs, [0, 1, 2]*2, **kw) for probs, kw in ((simulated(6).probs, {}), (simulated(6, seed=1).probs, {}), (simulated(6).probs, {}), (np.tile([.4, .3, .3], (6, 1)), {}), (np.eye(3)[[0, 1, 2]*2], dict(labels_only=True)))]
    for q, slug in zip(p, ('a-one', 'b-one', 'a-two', 'flat', 'labels')): q.header = replace(q.header, system=slug)
    board = type('B', (), dict(predictions=p))
    assert c.confident(board) == ['a-one', 'b-one', 'a-two']


# promises

@fast
@given(st.integers(1, 120), st.integers(0, 10**6), st.sampled_from([.05, .2, .4]), st.sampled_from([.05, .1, .3]), st.integers(1, 12), st.booleans())
def test_certified_threshold_by_brute_force(n, seed, risk, delta, steps, ties):
    rng = np.random.default_rng(seed)
    conf = rng.random(n).round(1) if ties else rng.random(n)
    hit = rng.random(n) < .5 + .5*conf
    best = None
    for g in range(1, steps + 1):
        m = n*g//steps
        threshold = -1 if m == n else sorted(conf, reverse=True)[m]
        above = [h for x, h in zip(conf, hit) if x > threshold]
        if above and stats.binom.cdf(above.count(False), len(above), risk) <= delta/steps: best = (threshold, len(above)/n, above.count(False))
    got = c.certified_threshold(conf, hit, risk, delta, steps)
    if best is None: assert np.isnan(got.threshold) and (got.coverage, got.errors) == (0, 0)
    else: assert (got.threshold, got.coverage, got.errors) == pytest.approx(best)


SOURCES = {'falling': lambda x: .35*(1 - x), 'sure of its errors': lambda x: np.where(x > .9, .3, .02), 'level': lambda x: np.full_like(x, .11)}


def source(kind, n, rng, digits=None):
    "Confidences and whether the decisions are right, from a source whose error at each confidence is known."
    x = rng.random(n)
    if digits is not None: x = np.floor(x*10**digits)/10**digits + .5/10**digits
    return x, rng.random(n) >= SOURCES[kind](x)


def true_error(kind, threshold, digits=None):
    "Error rate of the source among the confidences above a threshold."
    x = (np.arange(200000) + .5)/200000
    if digits is not None: x = np.floor(x*10**digits)/10**digits + .5/10**digits
    e, above = SOURCES[kind](x), x > threshold
    return float(e[above].mean())


@pytest.mark.parametrize('digits', [None, 1], ids=['no ties', 'ties'])
@pytest.mark.parametrize('kind', SOURCES)
def test_the_promise_on_the_answered_holds(kind, digits):
    rng, runs, risk, delta = np.random.default_rng(7), 1500, .1, .2
    at = [c.certified_threshold(*source(kind, 250, rng, digits), risk, delta, steps=5).threshold for _ in range(runs)]
    truth = {t: true_error(kind, t, digits) for t in set(np.round(at, 3)) if t == t}
    broken = sum(truth[round(t, 3)] > risk for t in at if t == t)
    assert broken <= stats.binom.ppf(1 - 1e-6, runs, delta)


def test_the_promise_is_not_kept_by_being_silent():
    rng = np.random.default_rng(7)
    coverage = [c.certified_threshold(*source('falling', 1000, rng), .1, .2).coverage for _ in range(100)]
    best = next(x for x in np.linspace(0, 1, 1001) if true_error('falling', x) <= .1)
    assert .6*(1 - best) < np.mean(coverage) < 1 - best


def test_a_threshold_without_a_test_breaks_the_promise():
    "The simulation can fail: the largest coverage whose error is below the wanted one is wrong far more often than delta."
    rng, broken, runs = np.random.default_rng(7), 0, 300
    for _ in range(runs):
        conf, hit = source('falling', 250, rng)
        order = np.argsort(-conf)
        ok = np.flatnonzero(np.cumsum(~hit[order])/np.arange(1, 251) <= .1)
        broken += true_error('falling', conf[order][min(ok.max() + 1, 249)]) > .1
    assert broken > stats.binom.ppf(1 - 1e-6, runs, .2)


def test_one_coverage_has_the_exact_level():
    "With one coverage the chance to certify a source at the wanted error is the binomial's, just below delta."
    n, risk, delta = 200, .1, .1
    certain = sum(stats.binom.pmf(k, n, risk) for k in range(n + 1) if c.certified_threshold(np.full(n, .5), np.arange(n) >= k, risk, delta, steps=1).coverage)
    assert delta/2 < certain <= delta


@fast
@given(st.integers(1, 60), st.integers(0, 10**6), st.sampled_from([.02, .05, .2, .5]))
def test_conformal_threshold_by_brute_force(n, seed, risk):
    rng = np.random.default_rng(seed)
    conf = rng.random(n).round(2)
    hit = rng.random(n) < .6
    fits = lambda t: (sum(x > t and not h for x, h in zip(conf, hit)) + 1)/(n + 1) <= risk + 1e-12
    candidates = [-1., *sorted(set(conf.tolist()))]
    assert c.conformal_threshold(conf, hit, risk) == (min([t for t in candidates if fits(t)], default=np.inf))


@pytest.mark.parametrize('kind', SOURCES)
def test_the_promise_on_all_messages_holds(kind):
    "One message to come after each set of rows: wrong answers are binomial with at most the promised rate, and not far below it."
    rng, runs, n, risk = np.random.default_rng(3), 6000, 99, .05
    wrong = 0
    for _ in range(runs):
        conf, hit = source(kind, n + 1, rng)
        wrong += conf[-1] > c.conformal_threshold(conf[:-1], hit[:-1], risk) and not hit[-1]
    assert stats.binom.ppf(1e-6, runs, risk - 2/(n + 1)) <= wrong <= stats.binom.ppf(1 - 1e-6, runs, risk)


@pytest.mark.parametrize('risk, delta, steps', [(.05, .1, 20), (.2, .3, 4), (.5, .5, 1)])
def test_least_rows_is_the_least(risk, delta, steps):
    n = c.least_rows(risk, delta, steps)
    right = lambda m: c.certified_threshold(np.linspace(.5, 1, m), np.ones(m, bool), risk, delta, steps).coverage
    assert right(n) == 1 and (n == 1 or right(n - 1) == 0)


def test_wanted_rates_lie_between_zero_and_one():
    for f in (lambda: c.certified_threshold([.5], [True], 0), lambda: c.certified_threshold([.5], [True], .1, 1), lambda: c.conformal_threshold([.5], [True], 1)):
        with pytest.raises(ValueError, match='between 0 and 1'): f()
    assert np.isnan(c.certified_threshold([], []).threshold) and c.conformal_threshold([], []) == np.inf


# rows that a system has not seen

WORDS = [f'{a}{b}' for a in ('mor', 'tiv', 'gul', 'sep', 'dra', 'hon', 'vex', 'qui', 'pla', 'bru') for b in ('ast', 'enk', 'ifo', 'olu', 'ump', 'yrr', 'ezz', 'ocha')]


def unlike(i): return ' '.join(np.random.default_rng(i).choice(WORDS, 6))


@pytest.fixture
def rows_home(home):
    "ml_train with 60 rows; train holds the first 40 of them and 20 others."
    items = toy_items(60, state=unlike, id=lambda i: f'r{i:03d}')
    others = toy_items(20, state=lambda i: unlike(i + 100), id=lambda i: f'o{i:03d}')
    write_jsonl(home/'data'/'ml_train.jsonl', (i.to_row() for i in items))
    write_jsonl(home/'data'/'train.jsonl', (i.to_row() for i in items[:40] + others))
    return home


class Memory:
    "A classifier that is certain of the texts it was fitted to, and of nothing else."
    fitted = []
    def __init__(self, texts, gold): self.known, self.classes_ = dict(zip(texts, gold)), np.arange(3); Memory.fitted.append(len(texts))
    def predict_proba(self, texts): return np.array([np.eye(3)[self.known[t]] if t in self.known else [.5, .3, .2] for t in texts])


def test_no_row_is_answered_by_a_classifier_that_saw_it(rows_home, monkeypatch):
    monkeypatch.setitem(c.REFIT, 'memory', lambda recipe: lambda texts, gold, groups: Memory(texts, gold))
    Memory.fitted.clear()
    system = Toy('learner', training='train', recipe=dict(family='memory'), predict=lambda texts, q: np.tile([.2, .2, .6], (len(texts), 1)))
    p = c.held_out_predictions(system, folds=5)
    assert list(p.ids) == [f'r{i:03d}' for i in range(60)] and (p.header.condition, p.header.version) == ('held-out', system.card.version)
    assert p.probs[:40] == pytest.approx(np.tile([.5, .3, .2], (40, 1)))        # fitted again without them
    assert p.probs[40:] == pytest.approx(np.tile([.2, .2, .6], (20, 1)))        # never seen: the system itself
    assert len(Memory.fitted) == 5 and sum(60 - n for n in Memory.fitted) == 60


def test_rows_that_cannot_be_answered_unseen_are_left_out(rows_home):
    p = c.held_out_predictions(Toy('fixed', training='train', recipe=dict(family='unknown')))
    assert list(p.ids) == [f'r{i:03d}' for i in range(40, 60)]
    with pytest.raises(DataError, match='fitted to every row'): c.held_out_predictions(Toy('fixed', training='train', recipe=dict(family='unknown')), load('train').select(np.arange(40)))


def test_a_fine_tuned_system_has_not_seen_what_it_held_out(rows_home):
    from dataclasses import asdict
    recipe = tracks.Recipe(calibration=.25)
    card = Card('tuned', 'Tuned', 'B', 'A toy.', 'none', training='train', recipe=dict(family='finetune', **asdict(recipe)))
    states = load('train').states
    held = {s for s, h in zip(states, tracks.held_out(states, recipe)) if h}
    assert len(held) == 15 and c.seen_texts(card) == set(states) - held
    p = c.held_out_predictions(Toy('tuned', 'B', training='train', recipe=card.recipe))
    assert set(p.data.states) == {s for s in load('ml_train').states if s not in states} | held & set(load('ml_train').states)


def test_frozen_rows_are_kept_and_the_same_bytes(rows_home, monkeypatch):
    toy = Toy('toy')
    monkeypatch.setattr(c, 'find_system', lambda name: toy)
    path = c.freeze_held_out('toy')
    first, calls = path.read_bytes(), len(toy.calls)
    assert path == rows_home/'out'/'confidence'/'toy.jsonl'
    assert c.freeze_held_out('toy').read_bytes() == first and len(toy.calls) == calls          # kept
    assert c.freeze_held_out('toy', fresh=True).read_bytes() == first and len(toy.calls) > calls
    assert c.read_held_out(toy.card).probs == pytest.approx(even(load('ml_train').states, DEPARTMENT), abs=1e-5)
    with pytest.raises(DataError, match='polyroute confidence freeze toy'): c.read_held_out(replace(toy.card, version='other'))
    toy.card = replace(toy.card, version='other')
    c.freeze_held_out('toy')
    assert c.read_held_out(toy.card).header.version == 'other'                                # another version is computed anew


def test_frozen_rows_of_other_data_are_refused(rows_home, monkeypatch):
    toy = Toy('toy')
    monkeypatch.setattr(c, 'find_system', lambda name: toy)
    c.freeze_held_out('toy')
    write_jsonl(rows_home/'data'/'ml_train.jsonl', (i.to_row() for i in toy_items(60, state=unlike, id=lambda i: f'r{i:03d}', meta=lambda i: {'language': 'de'})))
    with pytest.raises(DataError, match='made on other data'): c.read_held_out(toy.card)


def test_an_untrained_run_has_no_weights(home, monkeypatch):
    monkeypatch.setattr(tracks, 'run_folder', lambda run, seed: home/'nothing')
    with pytest.raises(DataError, match='polyroute train multilingual-base'): tracks.find_system('multilingual-base')


# command line

def run(*args):
    r = CliRunner().invoke(cli.main, ['confidence', *args])
    return r.exit_code, r.output


def test_cli_table_and_languages(board_home):
    code, out = run('table')
    assert code == 0 and out.index('BEST') < out.index('LOW') and 'Confident errors' in out
    code, out = run('table', '--json')
    assert code == 0 and json.loads(out)['best']['items'] == 240
    code, out = run('languages', 'best')
    assert code == 0 and 'German' in out and 'With 20 items a group' in out
    code, out = run('languages', 'best', '--by', 'nothing')
    assert code == 1 and 'there are: language, script, script_group, tier' in out


def test_cli_freeze_temperature_and_threshold(board_home, rows_home, monkeypatch):
    toy = Toy('best', 'C', right_on(.97, 'best'))
    monkeypatch.setattr(c, 'find_system', lambda name: toy)
    code, out = run('temperature', 'best')
    assert code == 1 and 'polyroute confidence freeze best' in out
    code, out = run('freeze', 'best')
    assert code == 0 and out.strip().endswith('best.jsonl')
    code, out = run('temperature', 'best', '--split', 'ml_test')
    assert code == 0 and 'Tamil' in out and 'one T' in out
    code, out = run('threshold', 'best', '--risk', '.3', '--risk', '.01')
    assert code == 0 and '30%' in out and 'no threshold' in out and 'needs' in out
    code, out = run('threshold', 'best', '--json')
    assert code == 0 and set(json.loads(out)[0]['splits']) == {'ml_test', 'mix_test'}
    code, out = run('threshold', 'nobody')
    assert code == 1 and 'polyroute evaluate nobody' in out


@pytest.mark.parametrize('call', [lambda: c.calibration_p([float("nan"), .5], [1, 0]), lambda: c.calibration_p([.5], [1, 0]), lambda: c.least_rows(-.1), lambda: c.least_rows(0), lambda: c.least_rows(1)])
def test_what_is_no_probability_is_refused(call):
    with pytest.raises(ValueError, match='between 0 and 1'): call()
