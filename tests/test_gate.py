"The release gate: its p-values against brute force, its error rate, its three answers and their exit codes."
import json
from math import comb
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest
from conftest import fast, few, run_command as run
from polyroute import gate as g
from polyroute.items import DEPARTMENT, DataError, Dataset, Item, Question
from polyroute.predictions import Predictions, header_for
from polyroute.significance import holm

margins = st.sampled_from([.02, .03, .05, .1, .2])


# the statistic and the exact p-values

@fast
@given(st.integers(1, 60), st.data(), margins)
def test_the_variance_is_taken_at_the_most_likely_parameters(n, data, m):
    w = data.draw(st.integers(0, n)); l = data.draw(st.integers(0, n - w))
    def minus_log(t):                                  # t: share that only the new system gets right
        p = np.clip([t, t + m, 1 - 2*t - m], 1e-12, 1)
        return -np.array([w, l, n - w - l]) @ np.log(p)
    best = min([minimize_scalar(minus_log, bounds=(0, (1 - m)/2), method='bounded', options=dict(xatol=1e-12)).x, 0., (1 - m)/2], key=minus_log)
    var = n*(2*best + m - m*m)
    assert g.score_statistic(w, l, n, m) == pytest.approx((w - l + n*m)/np.sqrt(var), rel=1e-3, abs=1e-6)

@few
@given(st.integers(2, 9), margins, st.data())
def test_exact_p_is_the_largest_probability_over_the_whole_hypothesis(n, m, data):
    "By brute force over a grid of everything the hypothesis allows, losses beyond the margin too."
    w = data.draw(st.integers(0, n)); l = data.draw(st.integers(0, n - w))
    tables = [(a, b) for a in range(n + 1) for b in range(n + 1 - a)]
    far = [t for t in tables if g.score_statistic(*t, n, m) >= g.score_statistic(w, l, n, m) - 1e-8]
    def chance(t, loss):                               # of a table in `far`; t: shares that only the new system gets right
        return sum(comb(n, a)*comb(n - a, b) * t**a * (t + loss)**b * np.maximum(1 - 2*t - loss, 0)**(n - a - b) for a, b in far)
    p = g.not_worse_p(w, l, n, m)
    for loss in np.linspace(m, 1, 8): assert p >= chance(np.linspace(0, (1 - loss)/2, 301), loss).max() - 2e-3
    assert p == pytest.approx(chance(np.linspace(0, (1 - m)/2, 4001), m).max(), abs=1e-3)

@pytest.mark.parametrize('n, m', [(30, .03), (75, .05), (90, .1)])
def test_the_size_holds_between_the_points_that_were_tried(n, m):
    for loss in (m, m*1.3, 2*m): assert g.size(n, m, loss, .05, shares=233) <= .05 + 2e-5
    assert g.size(n, m, m, .05) > .03, 'and is not far below the level'

@fast
@given(st.integers(1, 80), st.data(), margins)
def test_a_win_more_and_a_loss_less_never_hurt(n, data, m):
    w = data.draw(st.integers(0, n)); l = data.draw(st.integers(0, n - w))
    p = g.not_worse_p(w, l, n, m)
    assert 0 < p <= 1
    if l: assert g.not_worse_p(w, l - 1, n, m) <= p + 1e-12
    if l: assert g.not_worse_p(w + 1, l - 1, n, m) <= p + 1e-12

def test_above_the_limit_the_normal_p_is_good_enough():
    assert g.size(g.EXACT, .03, .03, exact=False, shares=31) < .0525
    assert g.size(30, .03, .03, exact=False) > .055, 'and is not where the exact one stands in for it'
    assert g.not_worse_p(12, 12, g.EXACT + 1, .03) == pytest.approx(float(g.exact_p_values(g.EXACT, .03)[12, 12]), abs=.005)

@fast
@given(st.integers(0, 40), st.integers(0, 40))
def test_worse_is_the_one_sided_exact_mcnemar(w, l):
    assert g.worse_p(w, l) == pytest.approx(binomtest(l, w + l, alternative='greater').pvalue if w + l else 1)

@fast
@given(st.integers(1, 300), st.data(), st.sampled_from([.8, .9, .95]))
def test_interval_ends_where_the_statistic_reaches_its_quantile(n, data, conf):
    w = data.draw(st.integers(0, n)); l = data.draw(st.integers(0, n - w))
    lo, hi = g.paired_interval(w, l, n, conf)
    assert -1 <= lo <= (w - l)/n <= hi <= 1
    back = g.paired_interval(l, w, n, conf)
    assert (-back[1], -back[0]) == pytest.approx((lo, hi), abs=1e-9)

def test_items_for_margin_give_the_power():
    "Against the exact power of the exact test."
    for m, d in ((.05, .1), (.1, .2), (.05, .04)):
        n = g.items_for_margin(m, d)
        w, l = (x.ravel() for x in np.indices((n + 1, n + 1)))
        w, l = w[w + l <= n], l[w + l <= n]
        power = g._probability(g._log_ways(w, l, n), w, l, n, d/2, d/2)[g.exact_p_values(n, m)[w, l] < .05].sum()
        assert .72 < power < .88, (m, d, n, power)


# clusters

@fast
@given(st.integers(2, 30), st.integers(1, 4), st.integers(0, 9))
def test_repeating_every_item_adds_no_evidence(n, times, seed):
    d = np.random.default_rng(seed).integers(-1, 2, n)
    effect = g.design_effect(np.repeat(d, times), np.repeat(np.arange(n), times))
    if times == 1: assert effect == 1
    elif d.any() and np.ptp(d): assert effect == pytest.approx(times*n/(n - 1))
    else: assert effect == times

def test_error_rate_under_clusters():
    "Dialogues of five items that share their fate: the level holds with the effect, and would not without."
    rng, called, naive, m = np.random.default_rng(0), 0, 0, .1
    for _ in range(600):
        d = np.repeat(rng.choice([-1, 0, 1], 60, p=[.2, .7, .1]), 5)       # true loss 0.1
        w, l = int((d > 0).sum()), int((d < 0).sum())
        called += g.not_worse_p(w, l, 300, m, g.design_effect(d, np.repeat(np.arange(60), 5))) < .05
        naive += g.not_worse_p(w, l, 300, m) < .05
    assert called/600 < .05 + 3*np.sqrt(.05*.95/600) < naive/600


# the gate

def predictions(hit, languages='de', system='toy', question=DEPARTMENT, cluster=None):
    n, k = len(hit), len(question.options)
    languages = [languages]*n if isinstance(languages, str) else languages
    data = Dataset('toy', [Item(f'i{i}', 'x', question, question.options[0], None, {'language': languages[i]} | ({'cluster': cluster[i]} if cluster else {})) for i in range(n)], 'x')
    probs = np.full((n, k), .1/(k - 1)); probs[:, 0] = .9
    probs[~np.asarray(hit, dtype=bool)] = np.roll(probs[0], 1)
    return Predictions(header_for(system, data), data, probs)

@few
@given(st.integers(0, 10**6), st.floats(.5, 1), st.floats(.5, 1))
def test_rows_are_what_the_parts_give_alone(seed, a, b):
    rng = np.random.default_rng(seed)
    old, new = rng.random(150) < a, rng.random(150) < b
    lang = ['de']*60 + ['ta']*50 + ['ru']*40
    found = g.gate(predictions(new, lang), predictions(old, lang), .05)
    assert [(r.group, r.items) for r in found.rows] == [('all', 150), ('Latin', 60), ('Cyrillic', 40), ('Indic', 50)]
    alone = {'all': slice(None), 'Latin': slice(0, 60), 'Cyrillic': slice(110, 150), 'Indic': slice(60, 110)}
    p = []
    for r in found.rows:
        x, y = new[alone[r.group]], old[alone[r.group]]
        assert (r.wins, r.losses) == (int((x & ~y).sum()), int((y & ~x).sum()))
        assert r.difference == pytest.approx(x.mean() - y.mean())
        p.append((g.not_worse_p(r.wins, r.losses, r.items, .05), g.worse_p(r.wins, r.losses)))
        assert (r.p_not_worse, r.p_worse) == p[-1]
    kept, lost = (holm(np.array(x)) for x in zip(*p))
    for r, k, l in zip(found.rows, kept, lost):
        assert r.p_not_worse_holm == pytest.approx(k) and r.p_worse_holm == pytest.approx(l)
        assert r.verdict == ('not worse' if k < .05 else 'worse' if l < .05 else 'not resolvable')
    assert found.verdict == ('worse' if any(r.verdict == 'worse' for r in found.rows) else 'not worse' if all(r.verdict == 'not worse' for r in found.rows) else 'not resolvable')

def test_one_bad_group_fails_a_better_model():
    lang = ['de']*300 + ['ta']*60
    old = np.arange(360) % 5 > 0
    new = np.concatenate([np.ones(300, bool), np.zeros(60, bool)])
    found = g.gate(predictions(new, lang, 'new'), predictions(old, lang, 'old'))
    assert found.rows[0].difference > 0 and {r.group: r.verdict for r in found.rows}['Indic'] == 'worse'
    assert found.verdict == 'worse' and found.exit_code == 3 and 'Indic' in g.gate_text(found)

def test_a_significant_loss_within_the_margin_is_not_worse():
    hit = np.ones(600, bool); new = hit.copy(); new[:8] = False
    found = g.gate(predictions(new), predictions(hit), .05)
    assert found.rows[0].p_worse_holm < .05 and found.verdict == 'not worse'

def test_groups_of_one_value_and_items_without_a_group():
    hit = np.ones(200, bool)
    assert [r.group for r in g.gate(predictions(hit), predictions(hit)).rows] == ['all']
    lang = ['de']*100 + ['']*100
    assert [(r.group, r.items) for r in g.gate(predictions(hit, lang), predictions(hit, lang)).rows] == [('all', 200), ('Latin', 100)]

def test_any_question_and_clusters_are_named():
    seven = Question('intent', 'choice', 'What?', tuple((f'o{i}', '') for i in range(7)))
    hit, cluster = np.arange(200) % 9 > 0, [f'c{i//4}' for i in range(200)]
    found = g.gate(predictions(hit, question=seven, cluster=cluster), predictions(hit, question=seven, cluster=cluster), .05)
    assert found.rows[0].sources == 50 and g.gate_table(found)[0]['sources'] == 50
    assert found.rows[0].p_not_worse > g.not_worse_p(0, 0, 200, .05)

def test_wide_margin_for_groups():
    lang = ['de']*330 + ['ta']*30
    hit = np.ones(360, bool)
    tight, wide = (g.gate(predictions(hit, lang), predictions(hit, lang), group_margin=m) for m in (None, .15))
    assert tight.verdict == 'not resolvable' and wide.verdict == 'not worse' and [r.margin for r in wide.rows] == [.03, .15, .15] and 'nor by 15 points in any group' in g.gate_text(wide)

@pytest.mark.parametrize('margin', [0, 1, 3, -.03, float('nan')])
def test_a_margin_that_is_none(margin):
    hit = np.ones(5, bool)
    with pytest.raises(DataError, match='margin'): g.gate(predictions(hit), predictions(hit), margin)

def test_soft_labels_are_refused():
    p = predictions(np.ones(4, bool)); p.data.items[0] = Item('i0', 'x', DEPARTMENT, None)
    with pytest.raises(DataError, match='gold'): g.gate(p, p)

def test_texts_say_what_was_found():
    hit = np.ones(400, bool); bad = hit.copy(); bad[:40] = False
    ok, worse, open_ = g.gate(predictions(hit, system='n'), predictions(hit, system='o')), g.gate(predictions(bad, system='n'), predictions(hit, system='o')), g.gate(predictions(hit[:20], system='n'), predictions(hit[:20], system='o'))
    assert 'not worse' in g.gate_text(ok) and g.gate_text(worse).startswith('n is worse') and g.gate_text(open_).startswith('Not resolvable')
    assert f'{open_.rows[0].items_needed:,}' in g.gate_text(open_)
    assert {'n', 'o'} <= set(g.gate_table(ok)[0]) and {'toy (new)', 'toy (old)'} <= set(g.gate_table(g.gate(predictions(hit), predictions(hit)))[0])


@pytest.mark.parametrize('by, there', [('lang', 'language, script'), ('variety', 'tier'), ('', None)])
def test_a_key_without_values_is_no_grouping(by, there):
    "A mistyped key must not let a system through that is worse in a group."
    hit = np.ones(300, bool)
    p = predictions(hit, ['de']*150 + ['ta']*150)
    if by == '': assert [r.group for r in g.gate(p, p, by=by).rows] == ['all']
    else:
        with pytest.raises(DataError, match=f'name no {by}; there are: .*{there}'): g.gate(p, p, by=by)
    nothing = predictions(hit, [''] * 300)
    with pytest.raises(DataError, match='script_group; there are: none'): g.gate(nothing, nothing)
    assert g.gate(nothing, nothing, by=None).exit_code == 0

@pytest.mark.parametrize('wins, losses, n', [(-1, 0, 10), (0, -1, 10), (5, 5, 5), (800, 10, 700), (1, 1, -3), (.5, 0, 10), (float('nan'), 0, 10)])
def test_impossible_counts_are_refused(wins, losses, n):
    with pytest.raises(ValueError, match='cannot be among'): g.not_worse_p(wins, losses, n, .03)
    with pytest.raises(ValueError, match='cannot be among'): g.paired_interval(wins, losses, n)

def test_counts_of_any_type():
    assert g.not_worse_p(np.uint8(200), np.uint8(100), 700, .03) == g.not_worse_p(200, 100, 700, .03)
    assert g.worse_p(np.uint8(100), np.uint8(200)) == g.worse_p(100, 200)
    with pytest.raises(ValueError, match='cannot be among'): g.worse_p(-1, 3)


# CLI

def test_check_exit_codes(board_home):
    assert 'Verdict' in run('check', 'best', '--against', 'best', '--by', 'none', code=0)
    assert 'worse than best' in run('check', 'low', '--against', 'best', code=3)
    assert 'not resolvable' in run('check', 'second', '--against', 'best', '--margin', '1', code=4)

def test_check_of_files_as_data(board_home):
    found = json.loads(run('check', board_home/'out'/'systems'/'low'/'ml_test.jsonl', '--against', 'best', '--json', code=3))
    assert found['verdict'] == 'worse' and found['exit_code'] == 3 and found['rows'][0]['items'] == 240 and found['rows'][0]['group'] == 'all'
    assert found['rows'][0]['losses'] > found['rows'][0]['wins']

def test_check_faults_are_other_exit_codes(board_home):
    assert 'Error' in run('check', 'best', '--against', 'nobody', code=1)
    assert 'Error' in run('check', 'best', '--against', 'second', '--margin', '0', code=2)
    assert 'Error' in run('check', 'best', code=2)

def test_check_takes_the_split_of_a_file(board_home):
    found = json.loads(run('check', board_home/'out'/'systems'/'low'/'mix_test.jsonl', '--against', 'best', '--by', 'variety', '--json', code=3))
    assert found['split'] == 'mix_test' and [r['group'] for r in found['rows']] == ['all', 'arabizi', 'hinglish', 'spanglish']

def test_check_refuses_a_key_that_no_item_has(board_home):
    assert 'name no lang; there are: language' in run('check', 'low', '--against', 'best', '--margin', '60', '--by', 'lang', code=1)
    assert 'name no script_group; there are: variety' in run('check', 'best', '--against', 'best', '--split', 'mix_test', code=1)
