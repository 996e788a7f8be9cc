"The board against its own parts, and the cells in which there is nothing to show."
import html
import json
import math
from html.parser import HTMLParser
import numpy as np
import pytest
from conftest import SYSTEMS, Toy, even, right_on, toy_data, toy_items
from polyroute import items, leaderboard as lb, metrics, significance
from polyroute.items import DEPARTMENT, TWELVE, DataError, Item, Question, load, read_items, sha256, write_jsonl
from polyroute.predictions import Header, Predictions, frozen
from polyroute.systems import Card, UnsupportedQuestion, evaluate
from polyroute.leaderboard import compare, main_table, read_board, read_boards, read_results, render, report, resolution, results_table, scores, to_json, view_table

nan = math.isnan

def predict(data, probs, **kw):
    return Predictions(Header('toy', data.name, data.sha256, {q.name: list(q.options) for q, _ in data.by_question()}, **kw), data, np.asarray(probs, dtype=float))


# scores

def test_scores_are_the_metrics(board_home):
    p = frozen('middle', 'ml_test')
    s, n = scores(p), 240
    assert s['items'] == s['sources'] == n and s['right'] == p.hit.sum() and s['accuracy'] == p.hit.mean() and (s['lo'], s['hi']) == metrics.wilson(int(p.hit.sum()), n)
    assert s['macro_f1'] == metrics.macro_f1(p.probs, p.gold) and s['nll'] == metrics.nll(p.probs, p.gold) and s['brier'] == metrics.brier(p.probs, p.gold)
    assert s['ece'] == metrics.ece(p.conf, p.hit) and s['aurc'] == metrics.aurc(p.conf, p.hit, p.ids) and s['selective_80'] == metrics.selective_accuracy(p.conf, p.hit, p.ids)
    per = {l: p.hit[ix].mean() for l, ix in p.data.groups('language').items()}
    assert s['language_macro'] == pytest.approx(np.mean(list(per.values()))) and s['language_macro_lo'] <= s['language_macro'] <= s['language_macro_hi']
    assert s['worst_right']/s['worst_items'] == min(per.values()) and s['withheld_items'] == 80 and s['withheld_right'] == p.hit[np.isin(p.data.field('language'), ['ta', 'bn', 'ko', 'ar'])].sum()

def test_scores_of_one_item_and_of_none(tmp_path):
    data = toy_data(tmp_path/'x.jsonl', 3)
    one = scores(predict(data, even(data.states, DEPARTMENT)).select(np.array([0])))
    assert one['items'] == 1 and one['accuracy'] in (0, 1) and nan(one['selective_80']) and one['language_macro'] == one['accuracy'] and one['withheld_items'] == 0
    none = scores(predict(data, even(data.states, DEPARTMENT)).select(np.array([], dtype=int)))
    assert none['items'] == 0 and nan(none['accuracy']) and (none['lo'], none['hi']) == (0, 1) and all(nan(none[k]) for k in ('macro_f1', 'nll', 'ece', 'aurc', 'language_macro')) and none['worst_language'] == ''
    assert json.loads(to_json(none))['accuracy'] is None

def test_labels_only_have_no_probability_scores(home):
    data = load('ml_test')
    p = predict(data, np.eye(3)[(data.gold + (np.arange(240) % 9 == 0)) % 3], labels_only=True)
    s = scores(p)
    assert s['accuracy'] > .8 and not nan(s['macro_f1']) and all(nan(s[k]) for k in ('nll', 'brier', 'ece', 'ece_floor', 'ece_floor_95', 'aurc', 'selective_80', 'confident_errors', 'mean_confidence'))
    board = read_board(extra=[(Card('labels', 'Labels', 'ref', 'w', 'e'), p)])
    shown = main_table(board)[0]
    assert shown['NLL'] == '–' and shown['ECE (noise)'] == '– (–)' and shown['Accuracy [95% CI]'].startswith('88.8')

def test_other_languages_than_the_twelve(home):
    "A data set of one's own has other languages; English is not one of the twelve."
    data = toy_data(home/'data'/'own.jsonl', 30, meta=lambda i: {'language': ['fr', 'sw', 'en'][i % 3]})
    evaluate(Toy(predict=right_on(.5, 1)), data)
    s = scores(frozen('toy', 'own'))
    assert s['worst_language'] in ('fr', 'sw') and s['worst_items'] == 10 and s['withheld_items'] == 0
    view = view_table(read_boards('own'))[0]
    assert view['Worst language'].split()[0] in ('fr', 'sw') and view['Withheld four'] == 'unavailable'

def test_no_languages_are_unavailable_and_no_number(home):
    data = toy_data(home/'data'/'own.jsonl', 30, meta=lambda i: {})
    evaluate(Toy(predict=right_on(.5, 1)), data)
    view = view_table(read_boards('own'))[0]
    assert [view[k] for k in ('Language-macro [95% CI]', 'Worst language', 'Withheld four')] == ['unavailable']*3
    assert 'unavailable' in report(read_boards('own')) and json.loads(report(read_boards('own'), 'json'))['own']['systems'][0]['language_macro'] is None

def test_some_of_the_withheld_four_are_not_the_four(home):
    data = toy_data(home/'data'/'own.jsonl', 30, meta=lambda i: {'language': ['ta', 'bn', 'ko'][i % 3]})
    evaluate(Toy(), data)
    assert view_table(read_boards('own'))[0]['Withheld four'] == 'unavailable'

@pytest.mark.parametrize('sidecar', [False, True])
def test_original_rows_without_and_with_languages(home, monkeypatch, sidecar):
    rows = [{k: v for k, v in i.to_row().items() if k not in ('id', 'meta')} for i in toy_items(48)]
    digest = sha256(write_jsonl(home/'data'/'ml_test.jsonl', rows))
    monkeypatch.setattr(items, 'original_prefixes', lambda: {'ml_test': digest[:20]})
    if sidecar: write_jsonl(home/'data'/'ml_test.meta.jsonl', [{'row': i, 'language': TWELVE[i % 12]} for i in range(48)])
    evaluate(Toy(predict=right_on(.7, 1)), 'ml_test')
    view = view_table(read_boards())[0]
    values = [view[k] for k in ('Language-macro [95% CI]', 'Worst language', 'Withheld four')]
    assert all(v != 'unavailable' for v in values) if sidecar else values == ['unavailable']*3
    assert len(main_table(read_board())) == 1

def test_soft_splits_have_a_log_score_and_no_board(home):
    soft = np.array([[.5, .3, .2], [0, 1, 0], [.1, .1, .8]])
    made = [Item(f'{i}', f't{i}', DEPARTMENT, None, dict(zip(DEPARTMENT.options, row))) for i, row in enumerate(soft.tolist())]
    data = read_items(write_jsonl(home/'data'/'boundary.jsonl', (i.to_row() for i in made)))
    s = scores(predict(data, soft))
    assert s['log_score'] == pytest.approx(s['entropy']) and s['expected_accuracy'] == s['best_expected_accuracy'] == pytest.approx((.5 + 1 + .8)/3) and 'accuracy' not in s
    worse = scores(predict(data, np.roll(soft, 1, axis=1)))
    assert worse['log_score'] > s['log_score'] and worse['expected_accuracy'] < s['expected_accuracy'] and math.isfinite(worse['log_score'])
    labels = scores(predict(data, np.eye(3), labels_only=True))
    assert nan(labels['log_score']) and not nan(labels['expected_accuracy'])
    with pytest.raises(DataError, match='soft gold'): read_board('boundary')
    with pytest.raises(DataError, match='gold'): compare(predict(data, soft), predict(data, soft))

def test_a_split_with_some_soft_rows_is_refused(home):
    made = [Item('a', 't', DEPARTMENT, None, {'billing': 1., 'technical': 0., 'other': 0.}), Item('b', 't', DEPARTMENT, 'other')]
    data = read_items(write_jsonl(home/'data'/'x.jsonl', (i.to_row() for i in made)))
    with pytest.raises(DataError, match='without a gold answer'): scores(predict(data, np.ones((2, 3))/3))

@pytest.mark.parametrize('question', [Question('urgency', 'score', '?', tuple((str(i), '') for i in range(5))), Question('letter', 'choice', '?', tuple((c, '') for c in 'gfedcba')), Question('date', 'noul', '?', (('false', ''), ('true', '')))], ids=lambda q: q.type + str(len(q.options)))
def test_boards_of_other_questions(home, question):
    data = toy_data(home/'data'/'own.jsonl', 70, question)
    evaluate(Toy('a', predict=right_on(.9, 1)), data); evaluate(Toy('b', predict=right_on(.3, 2)), data)
    board = read_board('own')
    assert board.slugs == ['a', 'b'] and 0 < board.scores[0]['macro_f1'] <= 1 and 'own' in report(read_boards('own'))

def test_a_board_of_several_questions_has_no_macro_f1(home):
    qs = [Question('date', 'noul', '?', (('false', ''), ('true', ''))), DEPARTMENT, Question('letter', 'choice', '?', tuple((c, '') for c in 'gfedcba'))]
    data = read_items(write_jsonl(home/'data'/'own.jsonl', (Item(f'{i}', f't{i}', qs[i % 3], qs[i % 3].options[0]).to_row() for i in range(60))))
    evaluate(Toy(), data)
    s = read_board('own').scores[0]
    assert nan(s['macro_f1']) and 0 < s['accuracy'] < 1 and s['nll'] > 0 and main_table(read_board('own'))[0]['Macro-F1'] == '–'

def test_one_class_and_ties(home):
    data = read_items(write_jsonl(home/'data'/'own.jsonl', (Item(f'{i}', f't{i}', DEPARTMENT, 'billing').to_row() for i in range(10))))
    evaluate(Toy('all', predict=lambda s, q: np.ones((len(s), 3))/3), data)          # a tie goes to the first option
    evaluate(Toy('none', predict=lambda s, q: np.tile([0, 0, 1.], (len(s), 1))), data)
    board = read_board('own')
    assert [s['accuracy'] for s in board.scores] == [1, 0] and [s['macro_f1'] for s in board.scores] == [1, 0] and board.scores[1]['nll'] == pytest.approx(-math.log(metrics.FLOOR))


# the board

def test_order_tiers_and_places(board_home):
    b = read_board()
    right = b.hit.sum(axis=0)
    assert sorted(b.slugs) == sorted(s for s, _, _ in SYSTEMS) and right.tolist() == sorted(right, reverse=True)
    assert b.tiers.tolist() == significance.tiers(b.hit).tolist() and b.tiers[0] == 1 and b.tiers.max() >= 3
    r = significance.rank_stability(b.hit)
    assert b.ranks.mean.tolist() == r.mean.tolist()
    ranks = dict(zip(b.slugs, b.track_ranks()))
    assert ranks == {'best': 1, 'second': 1, 'middle': 1, 'near-middle': 2, 'low': None}

def test_ties_share_a_rank_in_their_track_and_go_by_slug(home):
    for slug in ('b', 'a', 'c'): evaluate(Toy(slug, 'A', right_on(.8, 'same')), 'ml_test')
    b = read_board()
    assert b.slugs == ['a', 'b', 'c'] and b.track_ranks() == [1, 1, 1] and b.tiers.tolist() == [1, 1, 1]
    r = resolution(b)
    assert (r.discordance, r.largest_gap, r.separated) == (0, 0, 0) and nan(r.exact) and 'nan' not in report(read_boards())

def test_filtering_by_track_moves_nobody(board_home):
    boards = read_boards()
    whole, everything = main_table(boards['ml_test']), json.loads(report(boards, 'json'))
    for track in ('A', 'B', 'C', 'ref'):
        assert main_table(boards['ml_test'], (track,)) == [r for r in whole if r['Track'] == track]
        data = json.loads(report(boards, 'json', (track,)))
        for split in data: assert data[split]['systems'] == [s for s in everything[split]['systems'] if s['track'] == track]

def test_one_system(home):
    evaluate(Toy(predict=right_on(.8, 1)), 'ml_test')
    b = read_board()
    assert b.tiers.tolist() == [1] and (b.ranks.lo[0], b.ranks.hi[0]) == (1, 1)
    text = report(read_boards())
    assert 'nothing to compare' in text and 'not run' in text and 'nan' not in text
    assert json.loads(report(read_boards(), 'json'))['ml_test']['resolution']['exact'] is None

def test_no_system(home):
    "A new outputs folder has nobody on the board; that is no crash."
    b = read_board()
    assert b.slugs == [] and b.hit.shape == (240, 0)
    for form in ('text', 'markdown', 'html', 'json'): assert 'ml_test' in report(read_boards(), form)

def test_absent_systems_say_why(board_home):
    def refuse(s, q): raise UnsupportedQuestion('only numbers')
    evaluate(Toy('numbers', predict=refuse), 'ml_test')
    toy_data(board_home/'data'/'en_test.jsonl', 10)
    b = read_boards()
    assert b['ml_test'].absent == {'numbers': 'n/a: only numbers'} and set(b['en_test'].absent.values()) == {'not run'}
    view = view_table(b)[0]
    assert view['English'] == 'not run' and 'T' in view['Code-mixed']

def test_an_extra_system_is_not_absent(board_home):
    data = toy_data(board_home/'data'/'en_test.jsonl', 10)
    card = Card('best', 'Best', 'C', 'w', 'e')                       # frozen on other splits, given by hand on this one
    b = read_board('en_test', extra=[(card, predict(data, even(data.states, DEPARTMENT)))])
    assert b.slugs == ['best'] and 'best' not in b.absent

def test_predictions_on_other_data_are_named(board_home):
    toy_data(board_home/'data'/'ml_test.jsonl', 10)
    with pytest.raises(DataError, match='other data') as e: read_board()
    assert 'ml_test.jsonl' in str(e.value.path)

def test_forms(board_home):
    boards = read_boards()
    text, md, page, data = (report(boards, f) for f in ('text', 'markdown', 'html', 'json'))
    for r in main_table(boards['ml_test']):
        for cell in (r['System'], r['Accuracy [95% CI]'], r['NLL']): assert cell in text and cell in md and html.escape(cell) in page
    parsed = json.loads(data)
    assert list(parsed) == ['ml_test', 'mix_test'] and [s['slug'] for s in parsed['ml_test']['systems']] == boards['ml_test'].slugs and parsed['ml_test']['data_sha256'] == boards['ml_test'].data.sha256
    assert all(word in text for word in ('Data: ', 'Tier', 'can be resolved'))

class Cells(HTMLParser):
    "Open tags and text of a page; fails if a tag is not closed."
    def __init__(self): super().__init__(); self.open, self.seen, self.text = [], [], []
    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ('meta', 'br'): self.open.append(tag)
    def handle_endtag(self, tag): assert self.open.pop() == tag
    def handle_data(self, d): self.text.append(d)

NASTY = '<script>alert("x")</script> & | `a` ‮إملاء'

def test_names_cannot_break_the_page(home):
    evaluate(Toy('nasty', name=NASTY, predict=right_on(.8, 1)), 'ml_test')
    page = report(read_boards(), 'html')
    p = Cells(); p.feed(page)
    assert p.open == [] and 'script' not in p.seen and NASTY in ''.join(p.text)

def test_names_cannot_break_a_markdown_table(home):
    evaluate(Toy('nasty', name=NASTY, predict=right_on(.8, 1)), 'ml_test')
    table = [l for l in render(main_table(read_board()), 'markdown').split('\n') if l.startswith('|')]
    assert len({l.replace('\\|', '').count('|') for l in table}) == 1

def test_render_nothing():
    assert render([]) == 'no rows'

def test_json_holds_only_json():
    got = to_json(dict(a=np.float64('nan'), b=np.int64(3), c=np.array([1.5, np.nan]), d=(True, np.bool_(False), None), e='é', f=metrics.wilson(1, 2)))
    assert json.loads(got, parse_constant=lambda c: pytest.fail(c)) == dict(a=None, b=3, c=[1.5, None], d=[True, False, None], e='é', f=list(metrics.wilson(1, 2)))
    assert 'Infinity' not in to_json([float('inf'), np.inf])

def test_resolution_counts_pairs(board_home):
    b = read_board()
    r = resolution(b)
    up = np.triu_indices(5, 1)
    assert r.pairs == 10 and r.separated == (b.pairs.p[up] < .01).sum() >= r.separated_holm >= r.separated_bonferroni
    d = np.abs(b.pairs.difference[up])
    assert r.largest_unseparated == d[b.pairs.p[up] >= .01].max(initial=0) and r.discordance == pytest.approx(b.pairs.discordance[up].mean())

def test_tiers_follow_alpha(board_home):
    assert read_board(alpha=1e-12).tiers.tolist() == [1, 1, 1, 2, 2] and read_board(alpha=.01).tiers.tolist() == [1, 1, 2, 2, 3]


# compare

def test_compare(board_home):
    a, b = frozen('best', 'ml_test'), frozen('middle', 'ml_test')
    c, d = compare(a, b), compare(b, a)
    assert c.p == d.p < .01 and c.verdict == d.verdict == 'best is better' and c.difference.value == pytest.approx(-d.difference.value) and (c.wins_first, c.wins_second) == (d.wins_second, d.wins_first)
    assert c.wins_first == (a.hit & ~b.hit).sum() and c.p == significance.mcnemar_exact(c.wins_first, c.wins_second) and c.difference == significance.bootstrap_difference(a.hit, b.hit)
    same = compare(a, a)
    assert same.verdict == 'not separated' and same.p == 1 and same.difference == (0, 0, 0) and nan(same.detectable) and lb.comparison_row(same)['Resolvable (points)'] == 'never'
    with pytest.raises(DataError, match='same items'): compare(a, frozen('best', 'mix_test'))
    with pytest.raises(DataError, match='same items'): compare(a, b.select(np.arange(5)))


# any other board's results

def csv(tmp_path, text):
    (tmp_path/'r.csv').write_bytes(text if isinstance(text, bytes) else text.encode())
    return tmp_path/'r.csv'

WIDE = 'item,x,y\na,1,0\nb,1,1\nc,0,1\n'
HIT = [[True, False], [True, True], [False, True]]

@pytest.mark.parametrize('text', [WIDE, WIDE.replace('\n', '\r\n'), '\ufeff' + WIDE, WIDE.replace('1', 'True').replace('0', 'FALSE'), WIDE.replace('1', '1.0'), WIDE.rstrip('\n'), WIDE.replace(',1', ', 1'),
                                  'system,item,correct\nx,a,1\nx,b,1\nx,c,0\ny,a,0\ny,b,1\ny,c,1\n', 'item,system,correct,note\nc,y,1,"a,b"\na,x,1,\nb,x,1,\nc,x,0,\na,y,0,\nb,y,1,\n'],
                         ids=['wide', 'CRLF', 'BOM', 'words', 'floats', 'no newline', 'spaces', 'long', 'long, shuffled'])
def test_results_are_read(tmp_path, text):
    systems, hit = read_results(csv(tmp_path, text))
    assert systems == ['x', 'y'] and hit.tolist() == HIT

LONG = 'item,system,correct\na,x,1\na,y,0\nb,x,1\n'

@pytest.mark.parametrize('text, line, id, words', [
    ('', None, None, ['CSV']), ('item,x,y\n', None, None, ['item ids']), ('item,x\na,1\n', None, None, ['two or more']), (b'\xff\xfeitem', None, None, ['CSV']), ('item;x;y\na;1;0\n', None, None, ['item ids']),
    ('item,x,y\na,1,0\nb,1,2\n', 3, 'b', ["'y'", "'2'"]), ('item,x,y\na,1,0\nb,1,\n', 3, 'b', ["'y'"]), ('item,x,y\na,1,0\nb,1\n', 3, 'b', ["'y'"]), ('item,x,y\na,1,0\nb,0.5,1\n', 3, 'b', ["'x'", "'0.5'"]), ('item,x,y\na,nan,0\n', 2, 'a', ["'x'", "'nan'"]),
    ('item,x,y\na,1,0\na,1,1\n', 3, 'a', ['twice']), ('item,x,y\na,1,0\n\nb,1,2\n', 4, 'b', ["'y'"]), ('item,x,y\n"a\nz",1,0\nb,1,2\n', 4, 'b', ["'y'"]),
    (LONG + 'b,y,maybe\n', 5, 'b', ["'y'", "'maybe'"]), ('item,system,correct\nz,x,1\nz,y,0\na,x,1\na,y,maybe\n', 5, 'a', ["'y'", "'maybe'"]), (LONG, None, 'b', ["'y'"]), (LONG + 'a,x,1\n', 5, 'a', ["'x'", 'twice']),
    ('item,x,y\na,1,0,1\nb,0,1,1\n', None, None, []), ('item,x,y\na,1,0,\nb,0,1,\n', None, None, []), ('item,x,x\na,1,0\n', None, None, ["'x'"]),
], ids=lambda t: repr(t)[:40] if isinstance(t, (str, bytes)) else '')
def test_bad_results_name_line_item_and_system(tmp_path, text, line, id, words):
    with pytest.raises(DataError) as e: read_results(csv(tmp_path, text))
    assert 'r.csv' in str(e.value.path) and (line, id) in ((e.value.line, e.value.id), (None, None)), str(e.value)
    for w in words: assert w in str(e.value), str(e.value)

def test_results_table(board_home):
    b = read_board()
    rows = results_table(b.slugs, b.hit)
    assert [r['system'] for r in rows] == b.slugs and [r['tier'] for r in rows] == b.tiers.tolist() and [r['rank_lo'] for r in rows] == b.ranks.lo.tolist()
    assert [(r['accuracy'], r['lo'], r['hi']) for r in rows] == [(s['accuracy'], s['lo'], s['hi']) for s in b.scores]


# systems of several seeds

def test_the_board_shows_the_first_seed(home):
    toy = Toy('seeded', 'B', right_on(.9, 1), seeds=[0, 4])
    assert [evaluate(toy, 'ml_test', seed=s) for s in (0, 4)] == ['computed']*2
    b = read_board()
    assert b.slugs == ['seeded'] and b.predictions[0].header.seed == 0


def test_predictions_of_an_older_version_are_not_on_the_board(board_home):
    folder = items.outputs_dir()/'systems'
    slug = read_board().slugs[0]
    card = json.loads((folder/slug/'system.json').read_text())
    (folder/slug/'system.json').write_text(json.dumps(card | dict(recipe=dict(weight=2), version='')))
    b = read_board()
    assert slug not in b.slugs and b.absent[slug] == 'not run'
