"Error classes, difficulty and overlap against plain enumeration; texts in tables; and questions, splits and systems that are not the released ones."
import html
import json
import math
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations, permutations, product
import matplotlib
import numpy as np
import pytest
from hypothesis import assume, example, given, strategies as st
from conftest import Toy, even, fast, few, right_on, selection, toy_data, toy_items
from wcwidth import iter_graphemes as graphemes
from polyroute import cli, errors as e
from polyroute.audit import Labeller
from polyroute.items import DEPARTMENT, TWELVE, DataError, Dataset, Item, Question, load, write_jsonl
from polyroute.leaderboard import above_chance, commonest_share, read_board, read_boards, render, to_json
from polyroute.predictions import Header, Predictions, frozen, write_predictions
from polyroute.systems import Card, cards, evaluate

matplotlib.use('Agg')
nan = math.isnan
SEVEN = Question('queue', 'choice', 'Which queue?', tuple((o, f'about {o}') for o in ('orders', 'returns', 'money', 'login', 'bugs', 'press', 'rest')))
LEVELS = Question('urgency', 'score', 'How urgent?', tuple((str(i), f'level {i}') for i in range(4)))


def predictions(gold, said, question=DEPARTMENT, conf=None, meta=lambda i: {}, **kw):
    k, n = len(question.options), len(gold)
    conf = [.9]*n if conf is None else conf
    data = Dataset('toy', [Item(f'i{i:03d}', f'text {i}', question, question.options[g], meta=meta(i)) for i, g in enumerate(gold)], 'x')
    probs = np.repeat((1 - np.asarray(conf, dtype=float).reshape(-1, 1))/(k - 1), k, axis=1) if n else np.zeros((0, k))
    for i, s in enumerate(said): probs[i, s] = conf[i]
    return Predictions(Header('toy', 'toy', 'x', {question.name: list(question.options)}, **kw), data, probs)


# residual option

def test_the_residual_option_is_declared_as_data():
    item = Item('a', 'text', DEPARTMENT, 'other')
    assert e.residual_option(item) == 'other'
    assert e.residual_option(replace(item, meta={'residual': {'department': 'billing'}})) == 'billing'
    assert e.residual_option(replace(item, meta={'residual': {}})) is None and e.residual_option(replace(item, meta={'residual': {'department': None}})) is None
    assert e.residual_option(replace(item, meta={'residual': {'queue': 'rest'}})) is None       # said of another question of the row
    assert e.residual_option(Item('b', 'text', SEVEN, 'rest')) is None                           # nothing is guessed from names
    reworded = replace(DEPARTMENT, instructions='Who?')
    assert e.residual_option(Item('c', 'text', reworded, 'other')) is None

@pytest.mark.parametrize('said, message', [('other', 'must be {question: option}'), ({'department': 'Other'}, "'Other' is not an option"), (['other'], 'must be')])
def test_a_wrong_declaration_names_the_item(said, message):
    with pytest.raises(DataError, match='id \'a\'') as x: e.residual_option(Item('a', 'text', DEPARTMENT, 'other', meta={'residual': said}))
    assert message in str(x.value)


# classes

@st.composite
def judged(draw):
    "Gold answers, decisions and a labeller's labels (None, an option, or a tie) for one question with or without a residual option."
    k = draw(st.integers(2, 7))
    n = draw(st.integers(0, 20))
    option = st.integers(0, k - 1)
    column = lambda s: draw(st.lists(s, min_size=n, max_size=n))
    return k, draw(st.one_of(st.none(), option)), column(option), column(option), column(st.one_of(st.none(), option, st.just('tie')))

@fast
@given(judged())
def test_classes_against_plain_counting(case):
    k, residual, gold, said, labels = case
    q = Question('q', 'choice', 'Which?', tuple((f'o{i}', '') for i in range(k)))
    p = predictions(gold, said, q, meta=lambda i: {'residual': {'q': None if residual is None else f'o{residual}'}})
    weights = {f'i{i:03d}': np.full(k, 1/k) if l == 'tie' else np.eye(k)[l] for i, l in enumerate(labels) if l is not None}
    reader = Labeller('reader', 'a toy', weights, options=q.options)
    want = []
    for g, s, l in zip(gold, said, labels):
        if s == g: want.append('')
        elif l not in (None, 'tie', g): want.append('disputed')
        elif residual in (g, s): want.append('residual')
        else: want.append('named')
    assert e.error_classes(p, reader).tolist() == want
    assert [c for c in e.error_classes(p).tolist() if c == 'disputed'] == []
    t, n = e.taxonomy(p, reader), Counter(want)
    assert t.items == len(gold) and t.errors == len(gold) - n[''] and t.named == n['named']
    there = any(l not in (None, 'tie') for l in labels)
    assert t.disputed == (n['disputed'] if there else None)
    if residual is None or not gold: assert t.residual is t.into is t.out_of is None and nan(t.even) and nan(t.p)
    else:
        assert t.residual == n['residual'] == t.into + t.out_of and t.out_of == sum(w == 'residual' and g == residual for w, g in zip(want, gold))
        left = [g for g, l in zip(gold, labels) if l in (None, 'tie', g)]
        assert nan(t.even) if not left else t.even == pytest.approx(np.mean([sum(residual in (g, s) for s in range(k) if s != g)/(k - 1) for g in left]))

@fast
@given(st.integers(0, 12), st.integers(0, 12), st.floats(.05, .95))
def test_binomial_p_against_the_sum(k, more, share):
    n = k + more
    pmf = [math.comb(n, i)*share**i*(1 - share)**(n - i) for i in range(n + 1)]
    want = sum(x for x in pmf if x <= pmf[k]*(1 + 1e-7))
    assert nan(e.binomial_p(k, n, share)) if not n else e.binomial_p(k, n, share) == pytest.approx(want)

def test_the_papers_table_is_a_taxonomy():
    "Counts built into predictions come back as the table that they were built from."
    gold = [0]*40 + [1]*40 + [2]*40
    said = [0]*30 + [1]*4 + [2]*6 + [1]*38 + [0]*2 + [2]*35 + [0]*5
    t = e.taxonomy(predictions(gold, said))
    assert (t.errors, t.named, t.residual, t.into, t.out_of) == (17, 6, 11, 6, 5) and t.even == pytest.approx(2/3)

def test_a_labeller_of_another_question_disputes_nothing():
    p = predictions([0, 1], [1, 1], SEVEN)
    reader = Labeller('reader', 'a toy', {'i000': np.array([0, 1., 0]), 'i001': np.array([0, 1., 0])})
    assert e.error_classes(p, reader).tolist() == ['named', ''] and e.taxonomy(p, reader).disputed is None
    assert e.reading(p.data[0], reader) == '–'

def test_the_column_names_its_labeller():
    data = predictions([0], [1]).data
    mine = Labeller('Ada', 'a toy', {'i000': np.array([0, 1., 0])})
    assert e.class_name('disputed', data) == 'Disputed: no labeller' and e.class_name('disputed', data, mine) == 'Disputed by Ada'
    assert e.class_name('disputed', data, replace(mine, independent=False)) == 'Disputed by Ada (not independent)'
    assert e.class_name('residual', data) == "Involves 'other'" and e.class_name('named', data) == 'billing / technical'
    seven = predictions([0], [1], SEVEN).data
    assert e.class_name('named', seven) == 'Options confused'
    assert e.class_name('named', predictions([0], [1], SEVEN, meta=lambda i: {'residual': {'queue': 'rest'}}).data) == 'Other options confused'

def test_soft_gold_has_no_errors():
    p = predictions([0, 1], [1, 1])
    p = replace(p, data=Dataset('toy', [replace(i, gold=None) for i in p.data]))
    for f in (e.error_classes, e.confusions, e.taxonomy):
        with pytest.raises(DataError, match='without one gold answer'): f(p)

def test_nothing_to_classify():
    none = predictions([], [])
    t = e.taxonomy(none)
    assert (t.items, t.errors, t.disputed, t.residual, t.confident) == (0, 0, None, None, 0) and nan(t.even) and nan(t.p)
    perfect = e.taxonomy(predictions([0, 2], [0, 2]))
    assert (perfect.errors, perfect.residual, perfect.named) == (0, 0, 0) and nan(perfect.p)

def test_labels_only_has_no_confident_errors():
    p = predictions([0, 1], [1, 1], labels_only=True)
    assert e.taxonomy(p).confident is None and e.confidently_wrong(p) is None
    assert e.confidently_wrong(predictions([0, 1], [1, 1], conf=[.9, .9])).tolist() == [True, False] and e.confidently_wrong(predictions([0], [1], conf=[.89])).tolist() == [False]

@fast
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_confusions_count_pairs(pairs):
    p = predictions([g for g, _ in pairs], [s for _, s in pairs], SEVEN)
    found = e.confusions(p)
    assert found == [] if not pairs else [[found[0][1][g, s] for s in range(7)] for g in range(7)] == [[pairs.count((g, s)) for s in range(7)] for g in range(7)]

def test_confusions_of_several_questions():
    a, b = predictions([0, 2], [1, 2]), predictions([3], [6], SEVEN)
    probs = np.zeros((3, 7)); probs[:2, :3], probs[2] = a.probs, b.probs
    both = Predictions(a.header, Dataset('toy', [*a.data, replace(b.data[0], id='x')]), probs)
    assert [(q.name, n.shape, int(n.sum())) for q, n in e.confusions(both)] == [('department', (3, 3), 2), ('queue', (7, 7), 1)]


# independence

@fast
@given(st.integers(0, 5), st.data())
def test_the_law_against_all_subsets(n, data):
    sizes = data.draw(st.lists(st.integers(0, n), max_size=3))
    want, total = np.zeros(n + 1), 0
    for chosen in product(*[list(combinations(range(n), s)) for s in sizes]):
        want[len(set(range(n)).intersection(*map(set, chosen)))] += 1; total += 1
    assert e.intersection_law(sizes, n) == pytest.approx(want/total)

@few
@given(st.integers(1, 400), st.data())
def test_the_law_sums_to_one_and_has_the_right_mean(n, data):
    sizes = data.draw(st.lists(st.integers(0, n), min_size=1, max_size=20))
    law = e.intersection_law(sizes, n)
    assert law.sum() == pytest.approx(1, abs=1e-9) and (law >= 0).all() and law @ np.arange(n + 1) == pytest.approx(n*np.prod(np.array(sizes)/n), abs=1e-7)

def test_the_law_refuses_what_is_no_subset():
    for sizes in ([4], [-1, 2]):
        with pytest.raises(ValueError, match='0 … 3'): e.intersection_law(sizes, 3)

@few
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 1)), min_size=1, max_size=6))
def test_together_against_all_permutations(rows):
    "Permuting one system's errors, over all items and within groups, gives the p-value."
    has, group = np.array([r[:2] for r in rows]), np.array([r[2] for r in rows])
    for groups, kept in ((None, lambda o: True), (group, lambda o: (group[list(o)] == group).all())):
        shared = [int((has[list(o), 0] & has[:, 1]).sum()) for o in permutations(range(len(rows))) if kept(o)]
        t = e.together(has, groups)
        assert t.observed == (has[:, 0] & has[:, 1]).sum() and t.expected == pytest.approx(np.mean(shared)) and t.p == pytest.approx(np.mean(np.array(shared) >= t.observed))

@few
@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=12), st.data())
def test_the_range_holds_95_percent(weights, data):
    law = np.array(weights)/sum(weights)
    t = e.law_test(data.draw(st.integers(0, len(law) - 1)), law)
    assert law[t.lo:t.hi + 1].sum() >= .95 - 1e-9 and law[:t.lo].sum() <= .025 + 1e-9 and law[t.hi + 1:].sum() <= .025 + 1e-9 and t.p == pytest.approx(law[t.observed:].sum())

@few
@given(st.integers(1, 8), st.integers(0, 4), st.randoms(use_true_random=False))
def test_expected_difficulty_against_all_outcomes(n, s, rng):
    hit, groups = np.array([[rng.random() < .7 for _ in range(s)] for _ in range(n)], dtype=bool).reshape(n, s), np.array([rng.choice('ab') for _ in range(n)])
    want = np.zeros(s + 1)
    for g in set(groups):
        part = hit[groups == g]
        acc = part.mean(axis=0)
        for outcome in product((0, 1), repeat=s): want[sum(outcome)] += len(part)*np.prod([a if o else 1 - a for a, o in zip(acc, outcome)])
    got = e.expected_solved_by(hit, groups)
    assert got == pytest.approx(want) and got.sum() == pytest.approx(n)
    assert e.solved_by(hit).tolist() == [sum(r.sum() == j for r in hit) for j in range(s + 1)]
    if s: assert e.together(~hit, groups).expected == pytest.approx(got[0], abs=1e-9) and e.together(hit, groups).expected == pytest.approx(got[-1], abs=1e-9)

@few
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=8))
def test_concentration_against_all_placements(rows):
    wrong, group = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    groups = {str(g): np.flatnonzero(group == g) for g in sorted(set(group))}
    c = e.concentration(wrong, groups)
    if not wrong.any(): assert c is None; return
    most = lambda chosen: max(Counter(group[list(chosen)]).values())
    all_ = [most(x) for x in combinations(range(len(rows)), int(wrong.sum()))]
    top = most(np.flatnonzero(wrong))
    assert (c.errors, c.total, c.items) == (top, wrong.sum(), len(groups[c.group])) and wrong[groups[c.group]].sum() == top and c.p == pytest.approx(np.mean(np.array(all_) >= top))

def test_concentration_without_groups(): assert e.concentration(np.array([True]), {}) is None

@few
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=40))
def test_consistency_is_cohens_kappa(rows):
    from sklearn.metrics import cohen_kappa_score
    a, b = np.array(rows).T
    assume(not (a.all() and b.all()) and (a.any() or b.any()))
    k = e.consistency(a, b, n_boot=200)
    assert k.value == pytest.approx(cohen_kappa_score(a, b)) and k.lo <= k.hi

def test_strata_keep_questions_apart():
    other = replace(DEPARTMENT, instructions='Who?')
    items = [Item('a', 't', DEPARTMENT, 'billing', meta={'language': 'de'}), Item('b', 't', other, 'billing', meta={'language': 'de'}), Item('c', 't', DEPARTMENT, 'billing', meta={'language': 'de'}),
             Item('d', 't', DEPARTMENT, 'billing', meta={'variety': 'hinglish'})]
    s = e.strata(Dataset('x', items))
    assert s[0] == s[2] and len(set(s)) == 3


# texts

CLUSTERS = ['x', ' ', 'e\u0301', 'நி', 'ষ্', 'দ্রা', 'क्ष', '👩‍👩‍👧', '👍🏽', 'あ', '漢', '한', 'لَ', 'Z\u0336\u0335', '\u05d0\u05b8']

@fast
@given(st.lists(st.sampled_from(CLUSTERS), max_size=30), st.integers(0, 30))
@example(['க்', 'ஷ'], 1)
@example(['ষ্', 'ষ্'], 1)     # these two join into one
def test_no_cluster_is_cut(clusters, keep):
    text = ''.join(clusters)
    got = e.shorten(text, keep)
    if got == text: assert min(len(clusters), sum(1 for _ in graphemes(text))) <= keep; return
    assert len(clusters) > keep and got.endswith('…') and text.startswith(got[:-1])
    regex = pytest.importorskip('regex')
    ends = {m.end() for m in regex.finditer(r'\X', text)} | {0}
    rest = text[len(got) - 1:]
    assert len(got) - 1 in ends or rest[:1].isspace()
    assert len(regex.findall(r'\X', got[:-1])) <= keep

def test_long_and_empty_texts():
    assert e.shorten('') == '' and e.shorten('a'*100_000, 400) == 'a'*400 + '…' and len(e.shorten('é'*3, 3)) == 3

class Page(HTMLParser):
    def __init__(self): super().__init__(); self.tags, self.cells, self.attributes = [], [], []
    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == 'td': self.cells.append(''); self.attributes.append(dict(attrs))
    def handle_data(self, data):
        if self.tags and self.tags[-1] == 'td' and self.cells: self.cells[-1] += data
    def handle_endtag(self, tag):
        if tag == 'td': self.tags.append('')

def parse(page):
    p = Page(); p.feed(page); p.close()
    return p

@fast
@given(st.text(st.characters(exclude_categories=['Cs'], exclude_characters='\r' + ''.join(map(chr, [*range(9), 11, 12, *range(14, 32), 127])))), st.text(st.characters(exclude_categories=['Cs', 'Cc'])))
@example('<script>alert(1)</script>', '"><td onclick=x>')
@example('two\u2028lines\nthree', 'a&amp;b')
def test_every_text_is_escaped(text, label):
    page = parse(e.items_html([{label + 'k': text, label + 'm': e.Message(text, 'ar', 'rtl')}], style=False))
    assert page.cells == [text, text] and set(page.tags) <= {'div', 'table', 'thead', 'tbody', 'tr', 'th', 'td', ''}
    assert page.attributes[0]['data-label'] == label + 'k' and page.attributes[1] == dict(role='cell', **{'class': 'message'}, dir='rtl', lang='ar')

def test_what_cannot_be_written_is_made_visible():
    page = e.items_html([{'Text': e.Message('a\ud83d b\x00c\x1b[31m\u202eabc')}])
    page.encode('utf-8')
    assert 'a\ufffd b␀c␛[31m\u202eabc</td>' in page
    assert '\x1b' not in e.items_text([{'Text': e.Message('\x1b[2J')}])

@pytest.mark.parametrize('meta, text, language, direction', [
    ({'language': 'ar'}, 'لا يعمل', 'ar', 'rtl'), ({'language': 'ar'}, 'Wi-Fi لا يعمل', 'ar', 'rtl'), ({'language': 'ar'}, 'error 404', 'ar', 'auto'), ({'language': 'ar', 'variety': 'arabizi'}, 'mesh shaghal', 'ar-Latn', 'auto'),
    ({'language': 'zh'}, '不能', 'zh-Hans', 'auto'), ({'variety': 'hinglish'}, 'nahi chal raha', 'hi-Latn', 'auto'), ({'language': 'he'}, 'Wi-Fi לא עובד', 'he', 'auto'), ({}, 'text', '', 'auto'), ({'language': 'hi"x'}, 'text', 'hi"x', 'auto')])
def test_language_and_direction(meta, text, language, direction):
    m = e.message(Item('a', text, DEPARTMENT, 'other', meta=meta))
    assert (str(m), m.language, m.direction) == (text, language, direction)
    cell = parse(e.items_html([{'Text': m}], style=False)).attributes[0]
    assert cell.get('lang', '') == language and cell['dir'] == direction

def test_fonts_cover_every_script():
    from polyroute.items import LANGUAGES
    for l in LANGUAGES.values():
        assert (l.code in e.FONTS) == (l.script not in ('Latin', 'Cyrillic')) and (l.code not in e.FONTS or f':lang({l.code})' in e.ITEM_STYLE)

def test_no_items(): assert e.items_html([]) == '<p>none</p>' and e.items_text([]) == 'none'


# boards

def test_chosen_systems(board_home):
    b = read_board('ml_test')
    floor = Counter(b.data.gold.tolist()).most_common(1)[0][1]/len(b.data)
    assert commonest_share(b.data) == pytest.approx(floor)
    for slug, track in (('best-two', 'C'), ('constant', 'ref')):
        evaluate(Toy(slug, track, right_on(.9, 'x') if slug != 'constant' else lambda t, q: np.tile([.8, .1, .1], (len(t), 1))), load('ml_test'))
    b = read_board('ml_test')
    above, chosen = [b.slugs[j] for j in above_chance(b)], [b.slugs[j] for j in e.best_above_chance(b)]
    assert 'constant' in b.slugs and 'constant' not in above and 'best-two' in above
    assert above == [s for s in b.slugs if s != 'constant' and (s != 'low' or 'low' in above)] and chosen == [s for s in above if s != 'best-two']
    assert e.sibling_pairs(b) == [(b.slugs.index('best'), b.slugs.index('best-two'))]

def test_one_system_of_each_family_the_chosen_one_first(board_home):
    b = read_board('ml_test')
    assert e.one_per_family(b) == e.best_above_chance(b)                   # nothing was chosen: the best of each
    evaluate(Toy('second-b', 'B', right_on(.93, 'second-b')), load('ml_test'))
    selection(board_home, 'second-b')
    b = read_board('ml_test')
    heads = [b.slugs[j] for j in e.one_per_family(b)]
    assert heads[0] == 'second-b' and 'second' not in heads and heads[1:] == [b.slugs[j] for j in e.best_above_chance(b) if b.slugs[j] != 'second']
    assert 'second' in [b.slugs[j] for j in e.best_above_chance(b)]        # that one's meaning stays
    assert {x for o in e.overlaps(b) for x in (o.first, o.second)} == set(heads)
    at = b.slugs.index('second-b')
    assert all('second' not in m.right_for for m in e.mistakes(b, at)) and any('best' in m.right_for for m in e.mistakes(b, at))
    assert [r['System'] for r in e.mending_table(b)] == [b.cards[j].name for j in e.one_per_family(b)]
    evaluate(Toy('constant', predict=lambda t, q: np.tile([.8, .1, .1], (len(t), 1))), load('ml_test'))
    selection(board_home, 'constant')                                      # chosen, but no better than the commonest answer here
    assert 'constant' not in [b.slugs[j] for b in [read_board('ml_test')] for j in e.one_per_family(b)]

@fast
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=60))
def test_more_or_less_than_the_even_share_only_beyond_chance(pairs):
    t = e.taxonomy(predictions([g for g, _ in pairs], [s for _, s in pairs]))
    found = e.residual_side(t)
    wrong = [(g, s) for g, s in pairs if g != s]
    k = sum(2 in x for x in wrong)
    if not wrong: assert found.side == '' and found.text in ('no errors', 'no residual option'); return
    assert found.text.startswith(f'{k} of {len(wrong)} (')
    p = e.binomial_p(k, len(wrong), t.even)
    assert found.side == ('' if not p < .01 else 'more' if k > t.even*len(wrong) else 'less') and ('not separated' in found.text) == (found.side == '')

def test_mistakes_and_hardest_against_the_predictions(board_home):
    b = read_board('ml_test')
    p, use = b.predictions[2], above_chance(b)
    found = e.mistakes(b, 2)
    assert {m.id for m in found} == set(p.ids[~p.hit]) and [m.confidence for m in found] == sorted((p.conf[~p.hit]).tolist(), reverse=True)
    for m in found:
        assert m.said == DEPARTMENT.options[p.probs[m.at].argmax()] and m.gold == p.data[m.at].gold != m.said
        assert set(m.right_for) == {b.slugs[j] for j in e.best_above_chance(b) if j != 2 and b.hit[m.at, j]}
    hard = e.hardest(b, at_most=2)
    right = b.hit[:, use].sum(axis=1)
    assert len(hard) == (right <= 2).sum() and [int(r['Solved by'].split()[0]) for r in hard] == sorted(right[right <= 2].tolist())
    for r in hard: assert sum(int(x.rsplit('×', 1)[1]) for x in r['Said instead'].split(', ')) == len(use) - int(r['Solved by'].split()[0])
    assert [r['Text'] for r in e.residual_errors(b, 2)] == [p.data[m.at].state for m in found]
    with pytest.raises(DataError, match='there are: .*near-middle'): e.position(b, 'nobody')

def test_overlaps_count_shared_errors(board_home):
    b = read_board('ml_test')
    for o in e.overlaps(b):
        x, y = (~frozen(s, 'ml_test').hit for s in (o.first, o.second))
        assert o.plain.observed == o.within.observed == (x & y).sum() and o.errors == (x.sum(), y.sum()) and o.plain.expected == pytest.approx(x.sum()*y.sum()/240)
        assert o.p_holm >= o.within.p - 1e-12 and not o.siblings
    same = e.overlaps(b, [(2, 2)])[0]
    assert same.kappa.value == 1 and same.plain.p < 1e-6 and same.siblings

def test_independent_systems_do_not_overlap_and_copies_do():
    "The test rejects about as often as it says, and nearly always for systems that fail on the same items."
    rng, apart, alike = np.random.default_rng(0), 0, 0
    for _ in range(300):
        a, b, hard = rng.random(120) < .25, rng.random(120) < .25, rng.random(120) < .2
        apart += e.together(np.c_[a, b]).p < .05
        alike += e.together(np.c_[hard | (rng.random(120) < .05), hard | (rng.random(120) < .05)]).p < .05
    assert apart < 300*.05 + 3*math.sqrt(300*.05*.95) and alike > 295

def test_mending_counts(board_home):
    b = read_board('ml_test')
    p, q = b.predictions[3], b.predictions[0]
    m, wrong, theirs = e.mending(p, q), ~p.hit & (p.conf >= .9), ~q.hit & (q.conf >= .9)
    assert (m.errors, m.mended, m.surely, m.theirs, m.both) == (wrong.sum(), (wrong & q.hit).sum(), (wrong & q.hit & (q.conf >= .9)).sum(), theirs.sum(), (wrong & theirs).sum()) and m.errors > 0
    only = lambda s: replace(s, header=replace(s.header, labels_only=True))
    assert e.mending(p, only(q))[2:7] == (e.mending(p, q).errors, m.mended, None, None, None) and nan(e.mending(p, only(q)).p)
    with pytest.raises(DataError, match='labels only'): e.mending(only(p), q)
    with pytest.raises(DataError, match='not run on the same items'): e.mending(p, q.select(np.arange(5)))
    rows = e.mending_table(b)
    assert [r['Confident errors'] for r in rows] == [int(e.confidently_wrong(b.predictions[j]).sum()) for j in e.best_above_chance(b)]

def test_second_reader_counts(board_home):
    b = read_board('ml_test')
    p, q = b.predictions[3], b.predictions[0]
    r, said, other = e.second_reader(p, q), p.probs.argmax(axis=1), q.probs.argmax(axis=1)
    flagged = {i for i, x, y in zip(p.ids, said, other) if x != y}
    wrong = {i for i, h in zip(p.ids, p.hit) if not h}
    least = {i for _, i in sorted(zip(p.conf, p.ids), key=lambda ci: (ci[0], ci[1]))[:len(flagged)]}
    sure = {i for i, c in zip(p.ids, p.conf) if c >= .9} & wrong
    assert (r.items, r.flagged, r.errors, r.caught, r.by_confidence, r.confident, r.confident_caught) == (240, len(flagged), len(wrong), len(flagged & wrong), len(least & wrong), len(sure), len(flagged & sure))
    a, b_ = len((flagged - least) & wrong), len((least - flagged) & wrong)
    assert r.p == pytest.approx(min(1, 2*sum(math.comb(a + b_, i) for i in range(min(a, b_) + 1))/2**(a + b_)))
    assert e.second_reader(p, p)[3:7] == (0, len(wrong), 0, 0)
    with pytest.raises(DataError, match='not run on the same items'): e.second_reader(p, q.select(np.arange(5)))

def test_untuned(board_home):
    b = read_board('ml_test')
    assert [b.slugs[j] for j in e.untuned(b)] == [b.slugs[j] for j in above_chance(b)]      # toys are trained on nothing
    tuned = replace(b.cards[0], training='train')
    assert e.trained_on(tuned, b.data)                                                          # the rows are not there: nothing is vouched for
    assert e.trained_on(replace(b.cards[0], training='my own rows'), b.data)
    write_jsonl(board_home/'data'/'train.jsonl', (i.to_row() for i in toy_items(14, SEVEN)))
    assert not e.trained_on(tuned, b.data)
    write_jsonl(board_home/'data'/'train.jsonl', (i.to_row() for i in toy_items(14)))
    assert e.trained_on(tuned, b.data)


def everything(b, labeller=None, figures=True):
    "Everything that the page makes of a split; the texts of all tables."
    import matplotlib.pyplot as plt
    boards = {b.split: b}
    texts = [render(t, 'html') for t in (e.taxonomy_table(b, labeller), e.mending_table(b))]
    texts += [e.items_html(e.hardest(b, labeller)), *(e.items_html(e.residual_errors(b, j, labeller)) for j in range(len(b.cards)))]
    for j in range(len(b.cards)): to_json(e.mistakes(b, j, labeller)); e.concentration(~b.hit[:, j], e.places(b.data)); e.confusions(b.predictions[j])
    e.overlaps(b); e.untuned(b)
    if not figures: return ' '.join(texts)
    for f in (e.taxonomy_figure(boards, b.slugs, labeller), e.difficulty_figure(boards, labeller), e.confusion_figure(boards, b.slugs), e.overlap_figure(boards)):
        f.canvas.draw(); plt.close(f)
    return ' '.join(texts)

@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('question, meta, residual', [(SEVEN, {'residual': {'queue': 'rest'}}, True), (SEVEN, {}, False), (LEVELS, {'language': 'fr'}, False), (DEPARTMENT, {'language': 'de'}, True)], ids=['seven', 'seven, none', 'score', 'one language'])
def test_another_question_goes_through(home, question, meta, residual):
    data = toy_data(home/'data'/'own.jsonl', 70, question, meta=lambda i: meta)
    for slug, share in (('mine-a', .95), ('mine-b', .9), ('yours', .7)): evaluate(Toy(slug, 'ref', right_on(share, slug)), data)
    b = read_board('own')
    text = everything(b)
    rows = e.taxonomy_table(b)
    assert all('n/a' in r['Into / out of it'] for r in rows) != residual and all(r['Disputed: no labeller'] == 'n/a' for r in rows) and 'nan' not in text
    assert ('Involves the residual option' in rows[0]) == (not residual)

@pytest.mark.filterwarnings('error')
def test_labels_only_and_constant_systems_go_through(home):
    data = load('ml_test')
    header = Header('labels', data.name, data.sha256, {'department': list(DEPARTMENT.options)}, labels_only=True)
    p = Predictions(header, data, np.eye(3)[(data.gold + (np.arange(240) % 7 == 0)) % 3])
    b = read_board('ml_test', extra=[(Card('labels', 'Labels', 'ref', 'w', 'e'), p)])
    assert 'nan' not in everything(b)
    at = b.slugs.index('labels')
    row = e.taxonomy_table(b, None, [at])[0]
    assert row['Confident (≥ 0.9)'] == 'n/a' and e.mending_table(b)[0]['Confident errors'] == 'n/a' and e.mistakes(b, at)[0].confidence is None
    assert e.residual_errors(b, at)[0]['Labels'] in DEPARTMENT.options        # a label without a confidence
    evaluate(Toy('constant', predict=lambda t, q: np.tile([.8, .1, .1], (len(t), 1))), data)
    alone = read_board('ml_test')
    assert 'nan' not in everything(alone) and e.best_above_chance(alone) == [] and e.hardest(alone) == [] and e.overlaps(alone) == []

def test_no_systems_and_several_questions(home):
    assert everything(read_board('ml_test'))
    rows = [i.to_row() for i in toy_items(30)] + [i.to_row() for i in toy_items(35, SEVEN, id=lambda i: f's{i:03d}', meta=lambda i: {'residual': {'queue': 'rest'}})]
    write_jsonl(home/'data'/'own.jsonl', rows)
    evaluate(Toy('mixed', predict=right_on(.8, 'm')), load('own'))
    b = read_board('own')
    everything(b)
    t, p = e.taxonomy(b.predictions[0]), b.predictions[0]
    said = [i.question.options[k] for i, k in zip(p.data, p.probs.argmax(axis=1))]
    assert t.residual == sum(not h and {'other', 'rest'} & {i.gold, s} != set() for i, s, h in zip(p.data, said, p.hit)) and t.residual + t.named == t.errors > 0
    assert commonest_share(b.data) == pytest.approx(15/65)

def test_the_same_twice(board_home):
    a, b = (everything(read_board('ml_test'), figures=False) for _ in range(2))
    assert a == b and e.overlaps(read_board('ml_test')) == e.overlaps(read_board('ml_test'))

def test_a_toy_labeller_on_a_board(board_home):
    b = read_board('ml_test')
    w = {i: np.eye(3)[(g + (n % 5 == 0)) % 3] for n, (i, g) in enumerate(zip(b.data.ids, b.data.gold))}
    reader = Labeller('Ada', 'a toy', w)
    text = everything(b, reader)
    assert 'Disputed by Ada' in text
    t = e.taxonomy(b.predictions[4], reader)
    assert t.disputed == (~b.hit[:, 4] & (np.arange(240) % 5 == 0)).sum() > 0 and t.disputed + t.residual + t.named == t.errors


# command

def call(*args, code=0):
    from click.testing import CliRunner
    r = CliRunner().invoke(cli.main, ['errors', *map(str, args)])
    assert r.exit_code == code, r.output
    return r.output

def test_command_classes_and_items(board_home):
    b = read_board('ml_test')
    out = call()
    assert 'BEST' in out and 'Disputed: no labeller' in out
    found = json.loads(call('--json'))
    assert list(found) == b.slugs and found['low']['errors'] == int((~frozen('low', 'ml_test').hit).sum()) and found['low']['disputed'] is None
    one = json.loads(call('low', '--json'))
    assert len(one['mistakes']) == one['errors'] and {m['id'] for m in one['mistakes']} == set(load('ml_test').ids[~frozen('low', 'ml_test').hit])
    assert call('best').count('\n    ') == int((~frozen('best', 'ml_test').hit).sum())
    assert call('best', '--html').startswith('<!doctype html>') and 'class="items"' in call('low', '--html')

def test_command_reads_files_and_labels(board_home, tmp_path):
    p = frozen('low', 'ml_test')
    path = write_predictions(tmp_path/'mine.jsonl', p)
    assert json.loads(call(path, '--json'))['errors'] == int((~p.hit).sum())
    assert 'made on other data' in call(path, '--split', 'mix_test', code=1)
    labels = write_jsonl(tmp_path/'labels.jsonl', ({'id': i.id, 'label': 'other'} for i in p.data))
    assert '--name and --what' in call('--labels', labels, code=2)
    assert 'Disputed by Ada' in call('--labels', labels, '--name', 'Ada', '--what', 'a person')
    assert 'no predictions on ml_test; there are: ' in call('nobody', code=1)

def test_command_without_systems(home): assert 'polyroute evaluate SYSTEM --split ml_test' in call(code=1)
