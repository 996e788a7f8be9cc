"The label audit against brute force: kappa, entropy, consensus, bounds, soft scores, out-of-fold predictions, and every way in which a file of labels can be wrong."
import json
from collections import Counter
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.metrics import cohen_kappa_score, confusion_matrix, log_loss
from polyroute import audit as a, judgements, metrics
from polyroute.items import DEPARTMENT, TWELVE, DataError, Dataset, Item, data_dir, load, outputs_dir, reference, write_jsonl
from polyroute.predictions import frozen
from polyroute.release import raw_rows

OPTIONS = DEPARTMENT.options
labels = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 2), st.sampled_from(['de', 'ta', 'ko'])), min_size=1, max_size=60)

def made(rows):
    data = Dataset('toy', [Item(f'i{n}', str(n), DEPARTMENT, OPTIONS[g], meta={'language': l}) for n, (g, _, l) in enumerate(rows)], sha256='0'*64)
    return data, a.Labeller('Toy', 'a toy', {f'i{n}': np.eye(3)[x] for n, (_, x, _) in enumerate(rows) if x >= 0})

# ---------------------------------------------------------------- agreement

@given(labels)
def test_agreement_and_kappa_are_scikit_learns(rows):
    data, who = made(rows)
    kept = [(g, x) for g, x, _ in rows if x >= 0]
    if not kept:
        with pytest.raises(DataError, match='labels no item'): a.agreement(data, who)
        return
    found = a.agreement(data, who, 'language')
    gold, said = map(list, zip(*kept))
    assert a.confusion(data, who).tolist() == confusion_matrix(gold, said, labels=[0, 1, 2]).tolist()
    assert (found['all'].items, found['all'].agree) == (len(kept), sum(g == x for g, x in kept))
    if len(set(gold + said)) > 1:                                  # scikit-learn's own is undefined with one label
        assert found['all'].kappa == pytest.approx(cohen_kappa_score(gold, said, labels=[0, 1, 2]))
    for l in {l for _, _, l in rows}:
        mine = [(g, x) for g, x, m in rows if m == l and x >= 0]
        assert found[l][:2] == (len(mine), sum(g == x for g, x in mine))
        assert found[l][3:5] == metrics.wilson(found[l].agree, len(mine))

@given(labels, st.data())
def test_consensus_disputes_and_the_bound_are_counted(rows, draw):
    data, who = made(rows)
    hit = draw.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    fight = [x >= 0 and x != g for g, x, _ in rows]
    assert a.disputed(data, who).tolist() == fight
    assert a.consensus(data, who).tolist() == [x == g for g, x, _ in rows]
    b = a.noise_bound(hit, fight)
    assert b.errors == sum(not h for h in hit) and b.errors_on_disputed == sum(f and not h for h, f in zip(hit, fight))
    assert b.consensus_right + b.disputed_right == sum(hit) and b.consensus_items + b.disputed == len(rows)
    assert b.errors_on_disputed <= b.disputed
    # the ends are reached: over all ways to call the disputed items right or wrong
    assert b.lowest == pytest.approx(sum(h and not f for h, f in zip(hit, fight))/len(rows))
    assert b.highest == pytest.approx(sum(h or f for h, f in zip(hit, fight))/len(rows))

def test_kappa_interval_covers_and_is_seeded():
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 3, 300)
    said = np.where(rng.random(300) < .9, gold, rng.integers(0, 3, 300))
    data, who = made([(int(g), int(x), 'de') for g, x in zip(gold, said)])
    k = a.kappa_interval(data, who)
    assert k.lo < k.value < k.hi and k == a.kappa_interval(data, who)
    from statsmodels.stats.inter_rater import cohens_kappa
    assert k.hi - k.lo == pytest.approx(2*1.96*cohens_kappa(a.confusion(data, who)).std_kappa, rel=.1)

# ---------------------------------------------------------------- the paper's counts

def test_the_published_audit_follows_from_its_counts():
    found, r = a.published_agreement(), reference()['audit']
    whole = found['all']
    assert (whole.agree, whole.items) == (313, 322)
    assert [round(100*x, 1) for x in whole[2:5]] == [r['pct'], *r['wilson_pct']]
    for o, pct in r['by_department_pct'].items(): assert round(100*found[o].share, 1) == pct
    assert sum(found[c].agree for c in TWELVE) == sum(found[o].agree for o in OPTIONS) == r['agree']
    assert found['es'].items - found['es'].agree == 4

def test_consensus_accuracies_of_the_paper_are_whole_numbers_of_items():
    r = reference()
    for row in r['table10_11_leaderboard']:
        right = round(row['consensus_pct']*r['audit']['agree']/100)
        assert round(100*right/r['audit']['agree'], 1) == row['consensus_pct']
        assert 0 <= row['correct_of_322'] - right <= r['audit']['disputed']

# ---------------------------------------------------------------- labellers

@pytest.mark.parametrize('rows,why', [
    ([{'label': 'billing'}], 'line 1: a line needs an "id"'), ([{'id': 7, 'label': 'billing'}], 'needs an "id"'), ([{'id': 'i9', 'label': 'billing'}], "id 'i9': no released file has such an item"),
    ([{'id': 'i0', 'label': 'sales'}], "line 1, id 'i0': the label 'sales' is not an option; the options are billing, technical, other"), ([{'id': 'i0'}], 'needs a "label", or a weight'),
    ([{'id': 'i0', 'label': 'other'}]*2, "line 2, id 'i0': this id stands on line 1 already"), ([{'id': 'i0', 'billing': 1, 'technical': 2}], 'a weight for each of billing, technical, other'),
    ([{'id': 'i0', 'billing': -1, 'technical': 2, 'other': 3}], 'at least 0'), ([{'id': 'i0', 'billing': 0, 'technical': 0, 'other': 0}], 'do not sum to 0'), ([{'id': 'i0', 'label': ['billing']}], 'is not an option'),
    ([{'id': 'i0', 'probabilities': {'billing': .5, 'technical': .4, 'other': .4}}], 'sum to 1.3'), ([], 'the file has no labels'), ([{'id': 'i0', 'billing': float('nan'), 'technical': 1, 'other': 1}], 'at least 0')])
def test_a_wrong_file_of_labels_is_refused(tmp_path, rows, why):
    data, _ = made([(0, 0, 'de')])
    with pytest.raises(DataError) as e: a.read_labeller(write_jsonl(tmp_path/'l.jsonl', rows), 'L', 'l', data=[data])
    assert why in str(e.value) and 'l.jsonl' in str(e.value)

def test_the_filter_is_refused_whole_in_part_and_rewritten(tmp_path):
    blind = raw_rows('blind_labels.jsonl')
    for rows in (blind, blind[::7], [blind[3]], [{'id': r['id'], 'label': r['label']} for r in reversed(blind)]):
        with pytest.raises(DataError, match='by construction'): a.read_labeller(write_jsonl(tmp_path/'l.jsonl', rows), 'L', 'l')

def test_a_reader_who_agrees_with_everything_is_no_filter(tmp_path):
    rows = [{'id': i.id, 'label': i.gold} for i in load('ml_test')]
    who = a.read_labeller(write_jsonl(tmp_path/'l.jsonl', rows), 'Agreeable', 'an invention')
    assert a.agreement(load('ml_test'), who)['all'][:2] == (360, 360)

def test_a_labeller_is_named_beside_the_consensus_and_missing_where_there_is_none(tmp_path):
    p = frozen('tfidf-all', 'ml_test')
    rows = [{'id': i.id, 'label': i.gold if n % 10 else OPTIONS[(OPTIONS.index(i.gold) + 1) % 3]} for n, i in enumerate(p.data)]
    who = a.read_labeller(write_jsonl(tmp_path/'l.jsonl', rows), 'Nina', 'an invention')
    keep = np.arange(360) % 10 > 0
    assert a.consensus_text(p, who) == f'{metrics.percent(p.hit[keep].mean(), *metrics.wilson(p.hit[keep].sum(), 324))} of 324 (Nina)'
    assert a.consensus_text(p, None) == a.consensus_text(p, a.third_reading()) == 'no independent labeller'
    row = next(r for r in a.consensus_table('ml_test', who) if r['System'] == 'TF-IDF + LR, all rows')
    assert row['On disputed items'] == f'{int((~p.hit & ~keep).sum())} of {int((~p.hit).sum())}'

def test_fitted_systems_are_not_independent():
    assert not a.system_labeller('tfidf-all').independent
    assert a.read_labeller(outputs_dir()/'systems'/'tfidf-all'/'mix_test.jsonl', 'n-grams', 'fitted here').independent is False
    with pytest.raises(DataError, match='has no predictions'): a.system_labeller('tfidf-all', ['nowhere'])

# ---------------------------------------------------------------- graded readings

weights = st.lists(st.lists(st.integers(0, 100), min_size=3, max_size=3).filter(any), min_size=1, max_size=30)

@given(weights, st.data())
def test_expected_agreement_entropy_and_confusion(rows, draw):
    gold = draw.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    data = Dataset('toy', [Item(f'i{n}', '', DEPARTMENT, OPTIONS[g]) for n, g in enumerate(gold)], sha256='0'*64)
    who = a.Labeller('G', '', {f'i{n}': np.array(w)/sum(w) for n, w in enumerate(rows)}, graded=True)
    c = a.graded_agreement(data, who, n_boot=20)['all']
    assert c.expected.value == pytest.approx(np.mean([w[g]/sum(w) for w, g in zip(rows, gold)]))
    assert c.entropy.value == pytest.approx(np.mean([-sum(x/sum(w)*np.log(x/sum(w)) for x in w if x) for w in rows]))
    assert c.agree == sum(w[g] == max(w) and w.count(max(w)) == 1 for w, g in zip(rows, gold))
    assert a.expected_confusion(data, who).sum() == pytest.approx(len(rows))
    order = [r['certainty'] for r in a.least_certain(data, who, len(rows))]
    assert order == sorted(order) and len(order) == len(rows)

def test_the_third_reading_agrees_and_says_whose_it_is():
    third = a.third_reading()
    assert not third.independent and third.graded and 'Claude' in third.what
    sure = []
    for s in ('ml_test', 'mix_test', 'en_test', 'ml_hard'):
        d = load(s)
        assert (third.labels(d) == d.gold).all()
        sure += a.certainty(d, third).tolist()
    assert len(sure) == 885 and round(np.mean(sure), 3) == .966

# ---------------------------------------------------------------- out of fold

def test_siblings_and_near_duplicates_share_a_fold():
    o = a.read_oof()
    group = a.kindred(o.data)
    for g in np.unique(group): assert len(set(o.fold[group == g])) == 1
    runs = Counter()
    for n, i in enumerate(o.data):
        if 'call' in i.meta: runs[i.meta['language'], i.meta['call'], o.fold[n]] += 1
    assert set(runs.values()) == {30} and len(runs) == 48
    for p in o.probs.values():
        assert p.shape == (2757, 3) and np.allclose(p.sum(axis=1), 1, atol=1e-5)

def test_near_duplicates_are_found_by_brute_force():
    texts = ['the screen stays black', 'the screen stays black!', 'my refund is late', 'abcde', 'xyz', '', 'the SCREEN STAYS BLACK']
    data = Dataset('toy', [Item(f'i{n}', t, DEPARTMENT, 'other') for n, t in enumerate(texts)], sha256='0'*64)
    group = a.kindred(data, .2)
    grams = [{t[i:i + 5] for i in range(len(t) - 4)} for t in texts]
    for i in range(len(texts)):
        for j in range(len(texts)):
            if grams[i] | grams[j] and len(grams[i] & grams[j])/len(grams[i] | grams[j]) >= .2: assert group[i] == group[j]
    assert group[0] == group[1] and len(set(group[2:])) == 5 and group[0] not in group[2:]

def test_no_text_is_predicted_by_a_classifier_that_saw_it():
    rng = np.random.default_rng(0)
    data = Dataset('toy', [Item(f'i{n}', rng.bytes(20).hex(), DEPARTMENT, OPTIONS[n % 3]) for n in range(60)], sha256='0'*64)
    class Memory:
        classes_ = np.arange(3)
        def __init__(self, texts): self.seen = set(texts)
        def predict_proba(self, texts):
            assert not self.seen & set(texts)
            return np.tile([1, 0, 0], (len(texts), 1))
    o = a.compute_oof(data, dict(memory=lambda t, g, groups: Memory(t)), folds=5)
    assert (o.probs['memory'][:, 0] == 1).all()

def test_the_frozen_files_are_six_digits_and_the_same_bytes(tmp_path):
    for f, data in (('oof.jsonl', a.labelled_texts()), ('oof_planted.jsonl', a.plant_errors(a.labelled_texts()))):
        path = outputs_dir()/'audit'/f
        assert a.write_oof(a.read_oof(path, data), tmp_path/f).read_bytes() == path.read_bytes()
        with pytest.raises(DataError, match='made on other data'): a.read_oof(path, load('ml_test'))

def test_planted_errors_are_errors_and_are_found():
    data = a.plant_errors(a.labelled_texts())
    changed = [(i.gold, i.meta['planted']) for i in data if 'planted' in i.meta]
    assert len(changed) == int(.05*2757) and all(x != y for x, y in changed)
    d = a.doubt(a.read_oof(outputs_dir()/'audit'/'oof_planted.jsonl', data))
    assert (d.rank[d.both] <= d.both.sum()).all() and sorted(d.rank) == list(range(1, len(data) + 1))
    found = a.detection(data, d.both)
    assert found.found == sum(b and 'planted' in i.meta for b, i in zip(d.both, data)) and found.precision > .8

# ---------------------------------------------------------------- the boundary

@settings(max_examples=40)
@given(st.lists(st.tuples(st.lists(st.integers(1, 99), min_size=3, max_size=3), st.lists(st.integers(0, 99), min_size=3, max_size=3).filter(any)), min_size=2, max_size=20))
def test_soft_scores_by_hand(rows):
    norm = lambda w: np.array([np.array(x)/sum(x) for x in w])
    probs, soft = norm([p for p, _ in rows]), norm([s for _, s in rows])
    x = a.soft_score(probs, soft, n_boot=20)
    # a soft label is many items with hard ones: log_loss of scikit-learn on the expanded rows
    gold, weight = np.tile([0, 1, 2], len(rows)), soft.ravel()
    assert x.log_score.value == pytest.approx(log_loss(gold, np.repeat(probs, 3, axis=0), sample_weight=weight, labels=[0, 1, 2]))
    assert x.log_score.value == pytest.approx(metrics.log_score(probs, soft)) and x.log_score.value >= x.floor - 1e-9
    assert x.expected_accuracy.value <= x.best_expected_accuracy + 1e-12
    assert x.overconfidence.value == pytest.approx(probs.max(axis=1).mean() - x.expected_accuracy.value)

@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any), min_size=2, max_size=6))
def test_spread_is_the_mean_distance_of_pairs(readings):
    w = np.array(readings)/np.sum(readings, axis=1, keepdims=True)
    pairs = [max(abs(sum(x[i] - y[i] for i in s)) for s in ([], [0], [1], [2], [0, 1], [0, 2], [1, 2])) for n, x in enumerate(w) for y in w[n + 1:]]   # the largest difference over events
    assert a.spread(w[:, None])[0] == pytest.approx(np.mean(pairs))

def test_the_boundary_stands_alone():
    scores = a.boundary_scores()
    assert scores and all(x is None or x.items == 96 for x in scores.values())
    with_labels = a.boundary_differences(n_boot=200)
    n = sum(x is not None for x in scores.values())
    assert len(with_labels) == n*(n - 1)//2
    for p in with_labels: assert p.difference.value == pytest.approx(scores[p.a].log_score.value - scores[p.b].log_score.value)
    assert not set(load('boundary').ids) & set(a.labelled_texts().ids)

# ---------------------------------------------------------------- native speakers

@given(labels, labels)
def test_annotators_and_their_vote(x, y):
    n = min(len(x), len(y))
    data, _ = made([(g, 0, 'de') for g, _, _ in x[:n]])
    def judged(name, rows): return judgements.Judgements(name, 'native', 'de', data, {f'i{k}': judgements.Answer('yes', 3, (*OPTIONS, 'unclear')[l], '') for k, (_, l, _) in enumerate(rows)})
    two = [judged('A', x[:n]), judged('B', y[:n])]                  # -1 is the last: unclear
    both = [(l, m) for (_, l, _), (_, m, _) in zip(x[:n], y[:n]) if l >= 0 and m >= 0]
    rows = a.annotator_agreement(two)
    assert [(r['items'], r['agree']) for r in rows] == ([(len(both), sum(l == m for l, m in both))] if both else [])
    vote = a.majority(two).labels(data).tolist()
    assert vote == [l if m in (l, -1) else m if l == -1 else -1 for (_, l, _), (_, m, _) in zip(x[:n], y[:n])]
