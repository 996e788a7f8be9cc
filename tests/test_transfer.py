"Ladders, learning curves and the three questions, against counting by hand."
import json
import numpy as np
import pytest
from hypothesis import given, strategies as st
from conftest import fast
from polyroute import transfer as t
from polyroute.items import WITHHELD, DataError, load, read_rows
from polyroute.predictions import frozen
from polyroute.significance import mcnemar_exact
from polyroute.systems import cards, training_set

accuracies = st.lists(st.integers(0, 100), min_size=1, max_size=8)

@fast
@given(accuracies, st.integers(0, 100))
def test_first_reaches_is_the_first_crossing_of_the_drawn_line(values, level):
    line = [t.Point(10*i, v/100, 0) for i, v in enumerate(values)]
    got = t.first_reaches(line, level/100)
    xs = np.linspace(0, 10*(len(values) - 1), 1000*(len(values) - 1) + 1)
    above = xs[np.interp(xs, [p.native for p in line], values) >= level - 1e-9]
    assert (got is None) == (len(above) == 0)
    if got is not None: assert abs(got - above[0]) <= .011

def test_first_reaches_of_nothing(): assert t.first_reaches([], .5) is None

@fast
@given(st.integers(0, 2**16), st.integers(5, 60))
def test_samples_are_nested_and_without_repetition(seed, n):
    sizes = (0, 1, n//2, n)
    got = t.native_samples(np.arange(100, 100 + n), seed, sizes)
    assert [len(set(g)) for g in got] == list(sizes) and set(got[-1]) == set(range(100, 100 + n))
    for a, b in zip(got, got[1:]): assert set(a) <= set(b)

def test_withheld_view_counts():
    p = frozen('tfidf-all', 'ml_test')
    gold = {i.id: i for i in p.data}
    right = {'withheld': 0, 'remaining': 0}
    for id, hit in zip(p.ids, p.hit): right['withheld' if gold[id].meta['language'] in WITHHELD else 'remaining'] += int(hit)
    assert {k: v[0] for k, v in t.withheld_view(p).items()} == right

def test_steps_are_paired_tests_against_the_previous_rung():
    chain = list(t.read_rungs('ml_test', ['tfidf-base', 'tfidf-withheld', 'tfidf-all']).values())
    got = t.steps(chain)
    assert [(c.first, c.second) for c in got] == [('tfidf-withheld', 'tfidf-base'), ('tfidf-all', 'tfidf-withheld')]
    for c, new, old in zip(got, chain[1:], chain):
        b, l = sum(x and not y for x, y in zip(new.hit, old.hit)), sum(y and not x for x, y in zip(new.hit, old.hit))
        assert (c.wins_first, c.wins_second) == (b, l) and c.p == pytest.approx(float(mcnemar_exact(b, l)))

def test_every_rung_is_a_system_with_that_training_set():
    known = {c.slug: c for c in cards()}
    sets = dict(base='train', withheld='train_ml_ho', native='train_ml', base_free='train_free', withheld_free='train_ml_ho_free')
    for l in (t.LADDERS['tfidf'], t.LADDERS['e5']):
        for rung, name in sets.items():
            assert known[getattr(l, rung)].training == name and known[getattr(l, rung)].training_rows == len(training_set(name).department())

def test_answer_compares_on_the_withheld_languages_only():
    asked = t.Asked('tfidf-withheld', 'tfidf-base', 'ml_test', True)
    [(a, c)], missing = t.answer([asked, t.Asked('no-such', 'tfidf-base', 'ml_test')])[0], t.answer([asked, t.Asked('no-such', 'tfidf-base', 'ml_test')])[1]
    assert c.items == sum(i.meta['language'] in WITHHELD for i in load('ml_test')) and [m.first for m in missing] == ['no-such']
    assert f'{100*c.difference.value:+.1f} points' in t.sentence(a, c) and 'withheld' in t.sentence(a, c)

def test_curves_are_resumed_and_belong_to_their_data(tmp_path, monkeypatch):
    calls = []
    def points(family, base, sample):
        calls.append((family, base, sample))
        if len(calls) == 5: raise KeyboardInterrupt
        return [dict(family=family, base=base, sample=sample, native=n, split='ml_test', right=n, items=2000) for n in t.sample_sizes(sample)]
    monkeypatch.setattr(t, 'curve_points', points)
    monkeypatch.setattr(t, '_families', lambda: {'tfidf': None, 'e5': None})
    with pytest.raises(KeyboardInterrupt): t.write_curves(tmp_path)
    path = t.write_curves(tmp_path)
    assert len(calls) == 5 + 2*len(t.BASES)*t.SAMPLES - 4 and len(set(calls)) == len(calls) - 1
    assert len(t.read_curves(tmp_path)) == 2*len(t.BASES)*(t.SAMPLES*(len(t.SIZES) - 2) + 2)
    before = path.read_bytes()
    t.write_curves(tmp_path)
    assert path.read_bytes() == before and len(t.curve(t.read_curves(tmp_path), 'e5', 'base rows', 'ml_test')) == len(t.SIZES)
    head, *rest = before.decode().splitlines()
    head = json.loads(head); head['data']['ml_test'] = 'another'
    path.write_text('\n'.join([json.dumps(head), *rest]))
    with pytest.raises(DataError, match='another ml_test'): t.read_curves(tmp_path)
    with pytest.raises(DataError, match='there are no learning curves'): t.read_curves(tmp_path/'none')

def test_frozen_curves_end_in_the_board():
    points = t.read_curves()
    for family, stem in (('tfidf', 'tfidf'), ('e5', 'e5-logreg')):
        for split in t.CURVE_SPLITS:
            for base, (low, high) in {'base rows': ('base', 'all'), 'English rows': ('base-free', None)}.items():
                line = t.curve(points, family, base, split)
                assert line[0].mean == pytest.approx(frozen(f'{stem}-{low}', split).hit.mean()) and line[0].sd == 0
                if high: assert line[-1].mean == pytest.approx(frozen(f'{stem}-{high}', split).hit.mean()) and line[-1].sd == 0
