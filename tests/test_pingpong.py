"Dialogues: the released files, structure and switching against slow recounts, limits of the index, comparisons."
import itertools, json, math, random
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from polyroute import codemixed, pingpong as pp, significance
from polyroute.items import DataError, data_dir, write_jsonl
from polyroute.pingpong_collection import KINDS, Dialogue, Turn, dialogue_text, write_dialogues

fast = settings(max_examples=60, deadline=None)
TAG = st.sampled_from(['id', 'en', 'jv', 'other'])
TAGS = st.lists(st.lists(TAG, max_size=7), min_size=1, max_size=8)

@st.composite
def dialogues(draw, min_turns=1):
    n = draw(st.integers(min_turns, 14))
    return Dialogue('d', tuple(Turn(i, draw(st.sampled_from('ABCD')), ' '.join(['w']*draw(st.integers(0, 6))) or '😂', draw(st.one_of(st.none(), st.integers(1, i - 1))) if i > 1 else None) for i in range(1, n + 1)))

# ---- data

def test_released_files_are_the_build(tmp_path):
    made = pp.build(out=tmp_path)
    assert len(made) == 15 and sum(made.values()) == 50 + 500 + 50
    for f in made: assert (tmp_path/f).read_bytes() == (data_dir()/'pingpong'/f).read_bytes()

@pytest.mark.parametrize('c', pp.COMBINATIONS)
def test_items(c):
    qa, topics, ds = pp.load(f'qa.{c}'), pp.load(f'topic.{c}'), pp.load_dialogues(c)
    assert qa.name == f'qa.{c}' and len(qa) == 100 and len(qa.by_question()) == 100 and len(topics) == 10 == len(set(qa.clusters)) and topics.question == pp.TOPIC
    assert all((i.gold == 'E') == (i.meta['kind'] != 'answerable') and i.question.options == tuple('ABCDE') and len(set(i.question.descriptions)) == 5 for i in qa)
    assert {k: len(ix) for k, ix in qa.groups('kind').items()} == {k: 50 if k == 'answerable' else 10 for k in KINDS}
    by = {d.id: d for d in ds}
    for i in qa: assert i.state == dialogue_text(by[i.meta['cluster']]) and i.meta['speakers'] == len(by[i.meta['cluster']].speakers)
    assert all(len(t.text.split()) == len(l) and set(l) <= {*pp.COMBINATIONS[c].languages, 'other'} for d in ds for t, l in zip(d.turns, d.token_langs)) and all(len(d.token_langs) == 12 for d in ds)

def test_systems_answer_the_items(tmp_path):
    from conftest import Toy
    from polyroute.predictions import frozen
    from polyroute.systems import evaluate
    data = pp.load('qa.ha-en')
    assert evaluate(Toy(), data, tmp_path, suite='pingpong') == 'computed' and len(frozen('toy', data.name, tmp_path, data=data, suite='pingpong').probs) == 100

def test_errors():
    for name in ('qa', 'qa.xx', 'summary.id-en'):
        with pytest.raises(DataError): pp.load(name)
    with pytest.raises(DataError): pp.load_dialogues('xx')

# ---- structure

@fast
@given(dialogues(), st.booleans())
def test_structure_by_counting(d, with_tokens):
    tokens = [3*len(t.text) for t in d.turns] if with_tokens else None
    s = pp.structure(d, tokens)
    words = [len(t.text.split()) for t in d.turns]
    assert s.turns == len(d.turns) and s.words == sum(words) and s.replies == len([1 for t in d.turns if t.reply_to])
    assert s.length_variance_words == pytest.approx(sum((w - sum(words)/len(words))**2 for w in words)/len(words))
    assert math.isnan(s.tokens) != with_tokens and (not with_tokens or s.tokens == sum(tokens) and s.length_variance_tokens == pytest.approx(float(np.var(tokens))))
    between = [sum(1 for u in d.turns if t.reply_to <= u.n < t.n) for t in d.turns if t.reply_to]
    assert s.reply_distance == pytest.approx(np.mean(between) if between else 0)
    per = sorted(sum(t.speaker == x for t in d.turns) for x in {t.speaker for t in d.turns})
    assert s.imbalance == per[-1]/per[0] >= 1
    runs = [d.turns[i].speaker == d.turns[i - 1].speaker for i in range(1, len(d.turns))]
    assert s.runs == pytest.approx(np.mean(runs)) if runs else math.isnan(s.runs)

def test_structure_refuses_other_counts():
    with pytest.raises(DataError, match='1 token counts for 2 turns'): pp.structure(Dialogue('d', (Turn(1, 'A', 'x'), Turn(2, 'A', 'y'))), [1])

def test_a_long_dialogue_in_seconds():
    import time
    r, n = random.Random(0), 10000
    d = Dialogue('d', tuple(Turn(i, r.choice('ABCD'), 'a b c', r.randrange(1, i) if i > 1 and r.random() < .5 else None) for i in range(1, n + 1)))
    start = time.process_time(); pp.measures(d, [['id', 'en', 'other']]*n, [3]*n); dialogue_text(d)
    assert time.process_time() - start < 5

# ---- switching

def slow(tags, form):
    "A measure of one sequence, counted with loops."
    t = [x for x in tags if x != 'other']
    n, most, p = len(t), max((t.count(x) for x in t), default=0), sum(1 for i in range(1, len(t)) if t[i] != t[i - 1])
    if form == 'switch_point_fraction': return p/(n - 1) if n > 1 else math.nan
    if not n: return 0.
    return {'cmi': (n - most)/n, 'cmi_weighted': (n - most + p)/n/2, 'cmi_sum': (n - most + p)/n}[form]

same = lambda a, b: (math.isnan(a) and math.isnan(b)) or a == pytest.approx(b)

@fast
@given(TAGS)
def test_switching_by_counting(tags):
    for form in codemixed.MEASURES:
        v = [slow(t, form) for t in tags if any(x != 'other' for x in t)]
        v = [x for x in v if x == x]
        assert same(pp.switching(tags, 'turn')[form], sum(v)/len(v) if v else math.nan)
        flat = [x for t in tags for x in t]
        assert same(pp.switching(tags, 'sequence')[form], slow(flat, form) if any(x != 'other' for x in flat) else math.nan)
    said = [[x for x in t if x != 'other'] for t in tags]
    flat, places = sum(said, []), [(a, b) for t in said for a, b in zip(t, t[1:])]
    p = pp.switching(tags, 'pooled')
    if not flat: assert all(map(math.isnan, p.values()))
    else:
        outside, switches = len(flat) - max(flat.count(x) for x in flat), sum(a != b for a, b in places)
        assert p['cmi'] == pytest.approx(outside/len(flat)) and p['cmi_sum'] == pytest.approx((outside + switches)/len(flat)) and p['cmi_weighted'] == pytest.approx(p['cmi_sum']/2)
        assert same(p['switch_point_fraction'], switches/len(places) if places else math.nan)

@fast
@given(st.lists(st.lists(st.lists(st.sampled_from(['id', 'en', 'jv']), min_size=1, max_size=7), min_size=1, max_size=6), min_size=1, max_size=5))
def test_the_limits_hold_for_sets_of_dialogues(sets):
    "Means over dialogues of index and switch-point fraction never leave the limits."
    for unit in pp.UNITS:
        v = [pp.switching(d, unit) for d in sets]
        spf = [x['switch_point_fraction'] if x['switch_point_fraction'] == x['switch_point_fraction'] else 0. for x in v]
        for form in ('cmi', 'cmi_weighted', 'cmi_sum'):
            lows = [pp.cmi_limits(form, unit, s, 3, sum(map(len, d)), len(d))[0] for s, d in zip(spf, sets)]
            high = pp.cmi_limits(form, unit, float(np.mean(spf)), 3, 100)[1]
            assert np.mean(lows) - 1e-9 <= np.mean([x[form] for x in v]) <= high + 1e-9

def test_published_values_choose_the_form():
    out = {(f, u): len(pp.ruled_out(f, u)) for f in ('cmi', 'cmi_weighted', 'cmi_sum') for u in pp.UNITS}
    assert all(out[f, u] > 0 for f in ('cmi', 'cmi_weighted') for u in pp.UNITS) and out[pp.SHOWN_FORM, pp.SHOWN_UNIT] == 0 and out['cmi_sum', 'sequence'] > 0
    assert all(len(pp.ruled_out('cmi', u, 1)) > 0 for u in pp.UNITS)

def test_published_tables_follow():
    rows = pp.recomputed()
    assert len([r for r in rows if r['table'] == '3']) == 10 and all(abs(r['published'] - r['recomputed']) < .00101 for r in rows if r['table'] == '3')
    one = next(r for r in rows if r['cell'] == '2 speakers (50 dialogue), Avg length variance (tokens), human')
    assert one['recomputed'] == pytest.approx((83.436 + 47.58 + 104.202 + 48.252 + 49.231)/5)

# ---- tags and their error

def test_frozen_tags_must_fit(tmp_path):
    ds = pp.load_dialogues('ha-en')
    assert pp.frozen_tags(ds[0], 'ha-en', tmp_path) is None and pp.mixing_of(ds, 'ha-en', root=tmp_path).whole.value != pp.mixing_of(ds, 'ha-en', root=tmp_path).whole.value
    assert pp.mixing_of(ds, 'ha-en', root=tmp_path).labelled.value == pytest.approx(np.mean([pp.switching(d.token_langs)['cmi_sum'] for d in ds]))

@fast
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8))
def test_correction_takes_the_mean_error_off(rows):
    a, b, c = map(list, zip(*rows))
    r = pp.corrected(a, b, c, n_boot=50)
    assert r.corrected.value == pytest.approx(np.mean(c) - (np.mean(b) - np.mean(a))) and r.dialogues == len(rows)
    assert pp.corrected(a, a, c, n_boot=50).corrected == pp.corrected(a, a, c, n_boot=50).whole

# ---- comparisons and ratings

@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_compare(a, b):
    r, = pp.compare_sets({'m': np.array(a, dtype=float)}, {'m': np.array([*b, math.nan])}, n_boot=100)
    pairs = [(x > y) - (x < y) for x in a for y in b]
    assert r.delta == pytest.approx(sum(pairs)/len(pairs)) and r.difference.value == pytest.approx(np.mean(a) - np.mean(b)) and r.n == (len(a), len(b))
    assert (r.p == r.p) == (min(len(a), len(b)) > 1) and (r.p != r.p or 0 < r.p <= r.p_holm <= 1)

def test_compare_sees_a_difference_and_nothing_where_there_is_none():
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, 40)
    apart, = pp.compare_sets({'m': x}, {'m': x + 3}); alike, = pp.compare_sets({'m': x}, {'m': rng.normal(0, 1, 40)})
    assert apart.p < .01 and apart.difference.hi < 0 and alike.p > .05 and pp.compare_sets({'m': x}, {'k': x}) == []

def slow_alpha(ratings):
    units = [r for r in ratings if len(r) > 1]
    values = [v for r in units for v in r]
    if not units: return math.nan
    seen = sum((a - b)**2/(len(r) - 1) for r in units for i, a in enumerate(r) for j, b in enumerate(r) if i != j)/len(values)
    chance = sum((a - b)**2 for i, a in enumerate(values) for j, b in enumerate(values) if i != j)/(len(values)*(len(values) - 1))
    return 1 - seen/chance if chance else math.nan

@fast
@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=6))
def test_alpha(ratings): assert same(pp.krippendorff_alpha(ratings), slow_alpha(ratings))

def test_ratings(tmp_path):
    ds = pp.load_dialogues('id-en')[:2]
    f = tmp_path/'naturalness.csv'
    f.write_text('dialogue,number,annotator,rating\n' + ''.join(f'{d.id},{n},j{n},{r}\n' for d in ds for n, r in enumerate((3, 2), 1)))
    assert pp.naturalness(pp.read_ratings(f, ds))[:3] == (2, 2, 4) and pp.naturalness(pp.read_ratings(f, ds)).mean.value == 2.5
    for bad, says in (('id-en-01,1,j,4\n', "'4' is not 1, 2 or 3"), ('id-en-09,1,j,1\n', 'no such dialogue'), ('id-en-01,1,,1\n', 'not named'), ('id-en-01,1,j,1\nid-en-01,2,j,2\n', 'twice')):
        f.write_text('dialogue,number,annotator,rating\n' + bad)
        with pytest.raises(DataError, match=says): pp.read_ratings(f, ds)

@pytest.mark.parametrize('speakers', [2, 3, 4])
def test_beside_published(speakers):
    ds = [d for d in pp.load_dialogues() if len(d.speakers) == speakers]
    rows = {r['measure']: r for r in pp.beside_published(pp.measure_all(ds), speakers)}
    p, n = pp.reference('pingpong_paper')['table4_human_vs_machine'], {2: 50, 3: 25, 4: 25}[speakers]
    table = next(v for k, v in p.items() if k.startswith(str(speakers)))
    assert rows['replies']['human'] == pytest.approx(table['Total replies']['human']/n) and rows['imbalance']['machine'] == table['Avg imbalance ratio of speaker turns']['machine']
    assert rows['reply_distance']['ours'].value == pytest.approx(np.mean([pp.reply_distance(d) for d in ds])) and rows['naturalness']['ours'].value != rows['naturalness']['ours'].value and pp.nearer(rows['naturalness']) == ''

def test_frozen_token_counts():
    for d in pp.load_dialogues('id-en'):
        assert len(pp.token_counts(d)) == len(d.turns) and all(len(t.text.split()) <= n <= len(t.text) + 1 for n, t in zip(pp.token_counts(d), d.turns))
    changed = Dialogue(d.id, (Turn(1, 'A', 'other text'),))
    assert pp.token_counts(changed) is None and math.isnan(pp.measures(changed)['tokens']) and math.isnan(pp.measures(changed)['cmi'])

# CLI

def test_cli(tmp_path):
    from click.testing import CliRunner
    from polyroute.cli import main
    run = lambda *a: CliRunner().invoke(main, ['pingpong', *map(str, a)])
    assert run('build', '--out', tmp_path).exit_code == 0 and (tmp_path/'qa.id-en.jsonl').is_file()
    write_dialogues(tmp_path/'d.jsonl', pp.load_dialogues('ha-en')[:3])
    one = json.loads(run('structure', tmp_path/'d.jsonl', '--json').output)
    assert one['turns']['value'] == pytest.approx(np.mean([len(d.turns) for d in pp.load_dialogues('ha-en')[:3]]))
    two = run('structure', tmp_path/'d.jsonl', 'id-en')
    assert two.exit_code == 0 and 'reply distance' in two.output
    assert run('structure', tmp_path/'none.jsonl').exit_code == 1
