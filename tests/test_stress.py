"Stress conditions: views and header maps, flips and names against brute force, noise that keeps characters whole, resumed runs, other questions."
import itertools, json, shutil
from dataclasses import replace
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st
from conftest import Toy, even, fast, few, gold_of, right_on, toy_data, toy_items, tree
from polyroute import predictions, stress as s
from polyroute.items import DEPARTMENT, LANGUAGES, TWELVE, DataError, Item, Question, load, read_items, write_jsonl
from polyroute.predictions import Predictions, frozen, header_for, predictions_path, read_header, read_predictions, write_predictions
from polyroute.stress import CONDITIONS, Condition, Flips, Stressed, View, conditions_for, cycled, flips, follows_name, graphemes, header_fields, noise, run, show
from polyroute.systems import UnsupportedQuestion, cards, evaluate

SEVEN = Question.from_json('queue', dict(type='choice', instructions='Which queue?', criteria={f'q{i}': f'what goes to {"abcdefg"[i]}' for i in range(7)}))
SCORE = Question.from_json('urgency', dict(type='score', instructions='How urgent?', criteria=['not', 'soon', 'now']))
NOUL = Question.from_json('refund', dict(type='noul', instructions='Money back?', criteria={'false': 'keep it', 'true': 'give it back'}))
OPTIONS = [n for n, c in CONDITIONS.items() if c.view]
TEXTS = [n for n, c in CONDITIONS.items() if c.text]

def table(f):
    "A system made of a score for each (text, option, description, place)."
    def predict(texts, question):
        w = np.array([[f(t, o, d, i) for i, (o, d) in enumerate(question.criteria)] for t in texts], dtype=float).reshape(len(texts), -1)
        return w/w.sum(axis=1, keepdims=True)
    return predict

def pseudo(*x, top=97):
    "A positive whole number that belongs to some values."
    import hashlib
    return 1 + int.from_bytes(hashlib.sha256(repr(x).encode('utf-8', 'surrogatepass')).digest()[:4]) % top

by_description = table(lambda t, o, d, i: pseudo(t, d))
by_name = table(lambda t, o, d, i: pseudo(t, o))
by_place = table(lambda t, o, d, i: pseudo(t, i))
by_all = table(lambda t, o, d, i: pseudo(t, o) + pseudo(t, d) + pseudo(t, i))

@pytest.fixture
def seven(tmp_path): return toy_data(tmp_path/'seven.jsonl', 42, SEVEN)

@pytest.fixture
def toy(tmp_path): return toy_data(tmp_path/'toy.jsonl', 60)

def answers(tmp_path, data, predict, names):
    "The frozen predictions of a toy under conditions, canonical first."
    system = Toy(predict=predict)
    evaluate(system, data, tmp_path/'out')
    run(system, data, names, tmp_path/'out')
    return [frozen('toy', data.name, tmp_path/'out', data, **({} if n is None else dict(condition=n))) for n in [None, *names]]


# views

names_ = st.lists(st.text(st.characters(codec='utf-8'), min_size=1, max_size=6), min_size=2, max_size=9, unique=True)

@given(names_, st.integers(0, 10**6))
@fast
def test_every_view_carries_each_description_once(names, salt):
    q = Question('q', 'choice', 'Which?', tuple((n, f'{salt}-{i}') for i, n in enumerate(names)))
    for c in [*s.orders(len(names)), *(CONDITIONS[n] for n in OPTIONS if n not in ('translated', 'names-only'))]:
        v = c.view(q, '')
        assert sorted(v.carries) == list(range(len(names))) and len(set(v.question.options)) == len(names)
        shown = [d or n for n, d in v.question.criteria]                            # descriptions-only: the description is the name
        assert shown == [q.descriptions[i] for i in v.carries]
        Question.from_json('q', v.question.to_json())                               # still a question that a row may hold

@given(st.integers(2, 12))
@fast
def test_the_orders_are_all_cyclic_ones(k):
    q = Question('q', 'choice', '', tuple((str(i), '') for i in range(k)))
    seen = [c.view(q, '').question.options for c in s.orders(k)]
    assert [c.name for c in s.orders(k)] == [f'order-{i}' for i in range(1, k)]
    assert {q.options, *seen} == {q.options[i:] + q.options[:i] for i in range(k)} and len(set(seen)) == k - 1

@given(st.integers(1, 800))
@fast
def test_names_are_as_many_and_different(k):
    for f in (s.letters, s.numbers, s.opaque): assert len(set(f(k))) == k == len(f(k))

@pytest.mark.parametrize('question', [SCORE, NOUL], ids=lambda q: q.type)
def test_scales_have_one_order(question):
    for c in [*s.orders(3), CONDITIONS['letters'], CONDITIONS['rotated'], CONDITIONS['descriptions-only']]:
        with pytest.raises(UnsupportedQuestion): c.view(question, '')

def test_a_noul_can_lose_its_descriptions():
    assert CONDITIONS['names-only'].view(NOUL, '').question.to_json() == {'type': 'noul', 'instructions': 'Money back?'}
    with pytest.raises(UnsupportedQuestion): CONDITIONS['names-only'].view(SCORE, '')


# what comes back

@pytest.mark.parametrize('name', ['order-1', 'order-6', 'letters', 'numbers', 'opaque', 'rotated'])
def test_one_who_reads_descriptions_never_changes(tmp_path, seven, name):
    canonical, other = answers(tmp_path, seven, by_description, [name])
    np.testing.assert_allclose(other.probs, canonical.probs, atol=1e-6)

@pytest.mark.parametrize('predict', [by_name, by_place, by_all])
@pytest.mark.parametrize('by', [1, 2, 5])
def test_an_order_is_undone(tmp_path, seven, predict, by):
    p = answers(tmp_path, seven, predict, [f'order-{by}'])[1]
    shown = SEVEN.options[by:] + SEVEN.options[:by]
    raw = predict(seven.states, replace(SEVEN, criteria=tuple((o, dict(SEVEN.criteria)[o]) for o in shown)))
    for n, row in enumerate(raw): np.testing.assert_allclose([dict(zip(shown, row))[o] for o in SEVEN.options], p.probs[n], atol=1e-6)

def test_the_header_says_what_was_shown(tmp_path, toy):
    _, order, letters, rotated = answers(tmp_path, toy, by_all, ['order-2', 'letters', 'rotated'])
    assert order.header.options == {'department': ['other', 'billing', 'technical']} and order.header.shown == {}
    assert letters.header.options == {'department': ['A', 'B', 'C']} and letters.header.shown == {'department': {'A': 'billing', 'B': 'technical', 'C': 'other'}}
    assert rotated.header.options == {'department': ['technical', 'other', 'billing']} and rotated.header.shown == {'department': {'technical': 'billing', 'other': 'technical', 'billing': 'other'}}
    lines = [json.loads(l) for l in predictions_path('toy', 'toy', 'letters', root=tmp_path/'out').read_text().split('\n')[1:-1]]
    assert all(set(l['probabilities']) == set('ABC') for l in lines)
    version, _, digest = rotated.header.version.partition('+')
    assert version == Toy().card.version and len(digest) == 8

@pytest.mark.parametrize('name', ['order-1', 'rotated', 'opaque'])
def test_large_files_mean_the_same(tmp_path, toy, name, monkeypatch):
    plain = answers(tmp_path/'a', toy, by_all, [name])[1]
    monkeypatch.setattr(predictions, 'LARGE', 10)
    packed = answers(tmp_path/'b', toy, by_all, [name])[1]
    assert list((tmp_path/'b').rglob('*.gz'))
    np.testing.assert_allclose(plain.probs, packed.probs, atol=1e-4)
    assert plain.header == packed.header

def test_a_wrong_shape_is_the_systems_error(tmp_path, toy):
    with pytest.raises(DataError, match='shape'): run(Toy(predict=lambda t, q: np.ones((len(t), 2))/2), toy, ['letters'], tmp_path)


# flips and names, against brute force

@given(st.integers(0, 10**9), st.integers(2, 7), st.integers(1, 30))
@few
def test_flips_are_counted_one_by_one(salt, k, n):
    q = Question('q', 'choice', '', tuple((f'n{i}', f'd{i}') for i in range(k)))
    f = table(lambda t, o, d, i: pseudo(salt, t, o)//2 + pseudo(salt, t, i))
    data = s.Dataset('d', [Item(f'i{j}', f't{j}', q, f'n{j % k}', None) for j in range(n)], 'x'*64)
    def made(c): return Predictions(header_for('toy', data), data, Stressed(Toy(predict=f)).predict(data.states, s._asked(q, c, '')) if c else f(data.states, q))
    got = flips(made(None), [made(c) for c in s.orders(k)])
    def answer(t, order): return order[int(f([t], replace(q, criteria=tuple((o, 'd' + o[1:]) for o in order))).argmax())]
    def best(t, order):                     # equal scores: the canonical first
        row = dict(zip(order, f([t], replace(q, criteria=tuple((o, 'd' + o[1:]) for o in order)))[0]))
        return max(q.options, key=lambda o: (row[o], -q.options.index(o)))
    cyclic = [q.options[b:] + q.options[:b] for b in range(k)]
    moved = [[best(t, o) != best(t, q.options) for o in cyclic[1:]] for t in data.states]
    assert got.flipped == sum(map(any, moved)) and list(got.changed) == [sum(m) for m in zip(*moved)]
    assert list(got.right) == [sum(best(i.state, o) == i.gold for i in data) for o in cyclic[1:]]
    assert got.mean_changed == pytest.approx(np.mean(moved)) and got.rate >= got.mean_changed - 1e-12

def test_no_items_no_rate():
    f = Flips(0, 0, (), ())
    assert all(x != x for x in (f.rate, f.mean_changed, f.mean_accuracy))

def test_flips_need_the_same_items(tmp_path, toy):
    a, b = answers(tmp_path, toy, by_all, ['order-1'])
    with pytest.raises(DataError, match='not on the same items'): flips(a, [b.select(np.arange(5))])

@pytest.mark.parametrize('predict', [by_name, by_description, by_place, by_all])
@pytest.mark.parametrize('question', [DEPARTMENT, SEVEN], ids=lambda q: q.name)
def test_following_the_name_is_counted_one_by_one(tmp_path, predict, question):
    data = toy_data(tmp_path/'d.jsonl', 50, question)
    p = answers(tmp_path, data, predict, ['rotated'])[1]
    shifted = question.options[1:] + question.options[:1]
    shown = replace(question, criteria=tuple(zip(shifted, question.descriptions)))
    k = 0
    for i in data:
        row = predict([i.state], shown)[0]
        k += shifted[int(row.argmax())] == i.gold
    assert follows_name(p) == (k, 50)

def test_extremes_of_following(tmp_path, toy):
    gold_name = table(lambda t, o, d, i: 9 if o == DEPARTMENT.options[gold_of(t)] else 1)
    gold_description = table(lambda t, o, d, i: 9 if d == DEPARTMENT.descriptions[gold_of(t)] else 1)
    a = answers(tmp_path/'a', toy, gold_name, ['rotated'])[1]
    b = answers(tmp_path/'b', toy, gold_description, ['rotated'])[1]
    assert follows_name(a) == (60, 60) and not a.hit.any()
    assert follows_name(b) == (0, 60) and b.hit.all()

@pytest.mark.parametrize('name', ['order-1', 'letters'])
def test_names_that_do_not_shift_cannot_be_followed(tmp_path, toy, name):
    with pytest.raises(DataError, match='does not shift'): follows_name(answers(tmp_path, toy, by_all, [name])[1])


# running

def test_killed_runs_go_on(tmp_path, seven):
    whole = tmp_path/'whole'
    assert set(run(Toy(predict=by_all), seven, root=whole).values()) == {'computed', 'n/a'}
    class Killed(Toy):
        def predict(self, states, question):
            if len(self.calls) == 5: raise KeyboardInterrupt
            return super().predict(states, question)
    did = []
    for _ in range(40):
        try: did.append(run(Killed(predict=by_all), seven, root=tmp_path/'part'))
        except KeyboardInterrupt: continue
        break
    assert did and 'kept' in did[0].values() and tree(whole) == tree(tmp_path/'part')

def test_a_condition_resumes_within(tmp_path):
    data = toy_data(tmp_path/'long.jsonl', 100)
    class Killed(Toy):
        def predict(self, states, question):
            if len(self.calls) == 2: raise KeyboardInterrupt
            return super().predict(states, question)
    with pytest.raises(KeyboardInterrupt): run(Killed(predict=by_all), data, ['rotated'], tmp_path/'a')
    assert run(Toy(predict=by_all), data, ['rotated'], tmp_path/'a') == {'rotated': 'resumed'}
    assert run(Toy(predict=by_all), data, ['rotated'], tmp_path/'a') == {'rotated': 'kept'}
    run(Toy(predict=by_all), data, ['rotated'], tmp_path/'b')
    assert tree(tmp_path/'a') == tree(tmp_path/'b')

def test_a_changed_condition_is_run_again(tmp_path, toy):
    loud = Condition('loud', 'capitals', text=lambda t, _: t.upper())
    assert run(Toy(), toy, [loud], tmp_path) == {'loud': 'computed'}
    assert run(Toy(), toy, [loud], tmp_path) == {'loud': 'kept'}
    assert run(Toy(), toy, [replace(loud, text=lambda t, _: t.upper() + '!')], tmp_path) == {'loud': 'computed'}

def test_the_canonical_predictions_stay(tmp_path, toy):
    evaluate(Toy(), toy, tmp_path)
    before = tree(tmp_path)
    run(Toy(), toy, root=tmp_path)
    after = tree(tmp_path)
    assert all(after[f] == b for f, b in before.items() if not f.endswith('runs.json')) and len(after) > len(before)

def test_seeds_have_files_of_their_own(tmp_path, toy):
    run(Toy(seeds=[3, 4]), toy, ['letters'], tmp_path)
    run(Toy(seeds=[3, 4]), toy, ['letters'], tmp_path, seed=4)
    assert sorted(p.parent.name for p in tmp_path.rglob('*.letters.jsonl')) == ['seed-3', 'seed-4']

def test_progress_counts_the_items(tmp_path, toy):
    seen = []
    run(Toy(), toy, ['letters', 'noise-1'], tmp_path, progress=seen.append)
    assert sum(seen) == 2*len(toy)

def fitted(texts, question):
    if question != DEPARTMENT: raise UnsupportedQuestion('fitted to the department question')
    return even(texts, question)

def test_a_fitted_system_runs_the_text_conditions_only(tmp_path, toy):
    did = run(Toy(predict=fitted), toy, root=tmp_path)
    assert {n for n, d in did.items() if d == 'n/a'} == {'order-1', 'order-2', *OPTIONS}
    assert {n for n, d in did.items() if d == 'computed'} == set(TEXTS)

@pytest.mark.parametrize('bad', ['', 'Order', 'a/b', '../x', 'canonical', 'ä'])
def test_bad_names(bad):
    with pytest.raises(DataError): Condition(bad, 'bad')

def test_ones_own_condition_by_module(tmp_path, toy, monkeypatch):
    (tmp_path/'mine_stress.py').write_text('from polyroute.stress import Condition\nloud = Condition("loud", "capitals", text=lambda t, _: t.upper())\nnone = 3\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    system = Toy()
    assert run(system, toy, ['mine_stress:loud'], tmp_path/'out') == {'loud': 'computed'}
    for bad in ('mine_stress:none', 'mine_stress:x', 'no_such_module:x', 'order-9', 'nothing'):
        with pytest.raises(DataError): run(system, toy, [bad], tmp_path/'out')


# languages

def test_the_question_comes_in_the_messages_language(tmp_path):
    seen = {}
    def look(texts, question):
        seen.update({t: question for t in texts})
        return by_all(texts, question)
    data = toy_data(tmp_path/'d.jsonl', 24)
    p = answers(tmp_path, data, look, ['translated'])[1]
    for i in data: assert seen[i.state] == s.translated(DEPARTMENT, i.meta['language']).question
    assert p.header.options == {'department': list(DEPARTMENT.options)} and p.header.shown == {}
    for n, i in enumerate(data):             # probabilities stand under what the translated option stands for
        v = s.translated(DEPARTMENT, i.meta['language'])
        np.testing.assert_allclose(p.probs[n][list(v.carries)], by_all([i.state], v.question)[0], atol=1e-6)

def test_one_language_keeps_its_names(tmp_path):
    data = toy_data(tmp_path/'d.jsonl', 9, meta=lambda i: {'language': 'ko'})
    p = answers(tmp_path, data, by_all, ['translated'])[1]
    assert p.header.shown == {'department': {'청구': 'billing', '기술': 'technical', '기타': 'other'}}

def test_one_text_in_two_languages(tmp_path):
    data = toy_data(tmp_path/'d.jsonl', 4, meta=lambda i: {'language': ('de', 'tr')[i % 2]}, state=lambda i: 'OK', id=lambda i: f'x{i}')
    p = answers(tmp_path, read_items(write_jsonl(tmp_path/'same.jsonl', [i.to_row() | {'state': '0 OK'} for i in data])), by_name, ['translated'])[1]
    assert not np.allclose(p.probs[0], p.probs[1])

@pytest.mark.parametrize('meta', [{}, {'language': 'fr'}, {'variety': 'hinglish'}])
def test_without_a_translation_it_does_not_apply(tmp_path, meta):
    data = toy_data(tmp_path/'d.jsonl', 6, meta=lambda i: meta)
    assert run(Toy(), data, ['translated'], tmp_path/'out') == {'translated': 'n/a'}

def test_another_question_of_the_same_name_has_no_translation(tmp_path):
    other = replace(DEPARTMENT, instructions='Who?')
    with pytest.raises(UnsupportedQuestion, match='another question'): s.translated(other, 'de')
    with pytest.raises(UnsupportedQuestion, match='no translation of the question'): s.translated(SEVEN, 'de')

def schema(folder, **row):
    english = dict(language='en', question=SEVEN.to_json(), carries={o: o for o in SEVEN.options})
    return write_jsonl(folder/'schemas'/'queue.jsonl', [english, row])

def test_ones_own_schema(tmp_path, monkeypatch):
    monkeypatch.setenv('POLYROUTE_DATA', str(tmp_path))
    names = [f'x{i}' for i in range(7)]
    schema(tmp_path, language='de', question=dict(type='choice', instructions='Welche?', criteria={n: f'was {n}' for n in names}), carries=dict(zip(names, reversed(SEVEN.options))))
    assert s.translated(SEVEN, 'de').carries == (6, 5, 4, 3, 2, 1, 0)
    assert run(Toy(), toy_data(tmp_path/'d.jsonl', 7, SEVEN, meta=lambda i: {'language': 'de'}), ['translated'], tmp_path/'out') == {'translated': 'computed'}

@pytest.mark.parametrize('row', [dict(language='de'), dict(language='de', question=SEVEN.to_json()), dict(language='de', question=SEVEN.to_json(), carries={o: 'q0' for o in SEVEN.options}),
                                 dict(language='de', question={'type': 'odd'}, carries={}), dict(language='de', question=SEVEN.to_json(), carries=3)])
def test_bad_schemas(tmp_path, monkeypatch, row):
    monkeypatch.setenv('POLYROUTE_DATA', str(tmp_path))
    path = schema(tmp_path, **row)
    with pytest.raises(DataError) as e: s.translated(SEVEN, 'de')
    assert e.value.path == path

def test_the_translations_are_whole():
    rows = [json.loads(l) for l in s.schemas_path('department').read_text(encoding='utf-8').split('\n')[:-1]]
    assert [r['language'] for r in rows] == ['en', *[r['language'] for r in rows[1:]]] and {r['language'] for r in rows} == set(LANGUAGES)
    assert all('no native speaker' in r['read'] and 'language model' in r['written'] for r in rows[1:])
    assert all(len({*q['criteria'].values(), *q['criteria']}) == 6 for q in (r['question'] for r in rows))


# typing

def test_graphemes_are_the_whole_text():
    for t in ('', 'a\r\nb', 'क्षि', '👩\u200d🔧🇩🇪🇫🇷', 'a\u0301\u0323', '\ud800'): assert ''.join(graphemes(t)) == t

any_text = st.text(st.one_of(st.characters(), st.sampled_from('äßüñçğışİёъأإةىًّ١٢০१1230 ,.!?،।，。、¿ँ़क्षিকபிாெ가낢각的在ㅏ\u200d\u0301\u0308👩🔧🇩🇪\r\n')), max_size=40)
language = st.sampled_from(['', 'fr', *LANGUAGES])

def comes_from(text, out, lang):
    "Whether every cluster of a noisy text comes from one cluster of the clean one, in order: as it was, plain, with one letter of a unit exchanged, or another digit; spaces and opening marks may be gone."
    before, after, k = graphemes(text), graphemes(out), s.keyboard(lang)
    easy = lambda c: ''.join(s._plain(u, k.plain) for u in s._units(c))
    def unit(a, b): return b in (a, s._plain(a, k.plain)) or len(a) == len(b) and sum(x != y for x, y in zip(a, b)) == 1 or a in s._TEN + k.digits and b in s._TEN + k.digits
    def from_one(c, o): return len(s._units(c)) == len(s._units(o)) and all(map(unit, s._units(c), s._units(o)))
    reach = {(0, 0)}
    while reach:
        i, j = max(reach); reach.discard((i, j))
        if i == len(before):
            if j == len(after): return True
            continue
        c, plain = before[i], graphemes(easy(before[i]))
        if j < len(after) and from_one(c, after[j]): reach.add((i + 1, j + 1))
        if after[j:j + len(plain)] == plain: reach.add((i + 1, j + len(plain)))       # ß: two
        if c in (' ', '¿', '¡'): reach.add((i + 1, j))
    return False

@given(any_text, language, st.sampled_from([1, 2, 3]), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_characters_stay_whole(text, lang, level, seed):
    out = noise(text, lang, level, seed)
    assert out == noise(text, lang, level, seed) and comes_from(text, out, lang)

@pytest.mark.parametrize('lang', TWELVE)
def test_characters_of_the_messages_stay_whole(lang):
    data = load('ml_test')
    for i in data.groups('language')[lang]: assert comes_from(data[i].state, noise(data[i].state, lang, 3), lang)

def test_levels_are_shares_of_the_words():
    words = 10000
    text = ' '.join(['abgebucht']*words)
    for level, (_, share) in s.LEVELS.items():
        slipped = sum(w != 'abgebucht' for w in noise(text, 'de', level).split())
        assert abs(slipped/words - share) < .02
    assert noise(' '.join(['abc']*100), 'de', 3) == ' '.join(['abc']*100)             # short ones never

def test_a_space_goes_only_between_a_mark_and_a_letter():
    assert noise('ab, cd (e) f. (g), 👩 h', 'de', 3) == 'ab,cd (e) f. (g), 👩 h'

@given(any_text, language, st.integers(0, 3))
@fast
def test_more_noise_keeps_the_slips_of_less(text, lang, seed):
    words = lambda t: [''.join(g[0] for g in graphemes(w)) for w in t.split()]
    clean, *levels = (sum(a != b for a, b in itertools.zip_longest(graphemes(text), graphemes(noise(text, lang, n, seed)))) if n else 0 for n in (0, 1, 2, 3))
    assert bool(levels[0]) <= bool(levels[1]) <= bool(levels[2]) or any(noise(text, lang, n, seed) == text for n in (2, 3))

def test_noise_needs_no_tables_of_a_library(monkeypatch):
    "The same slips under every version of Unicode's clusters: they differ for this Bengali word."
    import sys
    monkeypatch.setitem(sys.modules, 'regex', None)
    assert noise('অ্যাকাউন্ট অ্যাকাউন্ট', 'bn', 3) != 'অ্যাকাউন্ট অ্যাকাউন্ট'
    with pytest.raises(s.MissingPackage): s.truncated('x')

@pytest.mark.parametrize('text', ['\r¿\n', '🇩¿🇪', '👩\u200d¿👩', '¿\u0301', 'a¿\u0301', '़', '\r़\n', ', \u0301', ',\u0301 a', 'ą¿'])
def test_nothing_is_left_out_where_two_would_become_one(text):
    for l in ('es', 'hi', 'ar', ''): assert len(graphemes(noise(text, l, 3))) == len(graphemes(text))

def test_slips_are_to_neighbouring_keys():
    text = 'Die Rechnung stimmt leider wieder nicht, bitte dringend korrigieren'
    keys = s.keyboard('de').beside
    for seed in range(30):
        out = noise(text, 'de', 3, seed)
        diff = [(a, b) for a, b in zip(text.replace(', ', ','), out) if a != b]
        assert all(b in keys[a] for a, b in diff) and len(diff) <= 9
        for a, b in zip(text.replace(',', ' ').split(), out.replace(',', ' ').split()): assert sum(x != y for x, y in zip(a, b)) <= (1 if len(a) >= 4 else 0)
    assert sum(noise(text, 'de', 3, seed) != text.replace(', ', ',') for seed in range(30)) == 30

@pytest.mark.parametrize('lang,script', [('ar', 'ARABIC'), ('ru', 'CYRILLIC'), ('hi', 'DEVANAGARI'), ('bn', 'BENGALI'), ('ta', 'TAMIL'), ('ko', 'HANGUL')])
def test_slips_stay_in_the_script(lang, script):
    import unicodedata
    data = load('ml_test')
    for i in data.groups('language')[lang]:
        clean = data[i].state
        for c in set(noise(clean, lang, 3)) - set(clean): assert c.isdigit() or script in unicodedata.name(c), (c, clean)

def test_other_languages_letters_stay():
    assert noise('δελτα δελτα δελτα', '', 3) == 'δελτα δελτα δελτα'
    assert noise('பணம் பணம் பணம்', 'de', 3) == 'பணம் பணம் பணம்'

def test_keyboards_are_of_one_kind():
    import unicodedata
    for l in LANGUAGES:
        k = s.keyboard(l)
        for c, near in k.beside.items(): assert c not in near and {unicodedata.category(x)[0] for x in near} == {unicodedata.category(c)[0]}, (l, c, near)
        assert len(k.digits) in (0, 10) and k.word >= 2

def test_truncation_ends_at_words(): assert [s.truncated('one two three four', '', x) for x in (.1, .3, .5, .9, 1.)] == ['on', 'one', 'one two', 'one two three', 'one two three four']

@given(any_text, st.floats(.01, 1))
@fast
def test_truncation_keeps_a_beginning(text, share):
    out = s.truncated(text, '', share)
    g = graphemes(text)
    assert text.startswith(out) and (bool(out) == bool(text) or not text.strip()) and len(graphemes(out)) <= max(1, int(np.ceil(share*len(g))))
    assert graphemes(out) == g[:len(graphemes(out))]
    if not g: assert out == ''
    if ' ' in out.strip() and text[len(out):].strip(): assert text[len(out)].isspace()      # words stay whole where there are spaces

@given(st.text('abc', max_size=8), st.text('abc', max_size=8))
@fast
def test_edits_against_recursion(a, b):
    from functools import cache
    @cache
    def d(i, j): return i + j if not i or not j else min(d(i - 1, j) + 1, d(i, j - 1) + 1, d(i - 1, j - 1) + (a[i - 1] != b[j - 1]))
    assert s._edits(a, b) == d(len(a), len(b))

def test_bad_keyboards(tmp_path, monkeypatch):
    monkeypatch.setenv('POLYROUTE_DATA', str(tmp_path))
    write_jsonl(tmp_path/'stress'/'typing.jsonl', [{'language': ''}])
    with pytest.raises(DataError, match='line 1'): noise('x', 'de')


# tables

def both(tmp_path, data, *toys, conditions=None):
    for t in toys:
        evaluate(t, data, tmp_path)
        run(t, data, conditions, tmp_path)

@pytest.fixture(scope='module')
def stressed_once(toys, tmp_path_factory):
    "Outputs of a reader of names, a fitted system and one that was not run under conditions, made once."
    data, out = read_items(toys/'data'/'ml_test.jsonl'), tmp_path_factory.mktemp('stressed')
    both(out, data, Toy('names', 'A', table(lambda t, o, d, i: 9 if o == DEPARTMENT.options[gold_of(t)] else 1)), Toy('fitted', 'ref', fitted))
    evaluate(Toy('alone', 'B'), data, out)
    return out

@pytest.fixture
def stressed(home, stressed_once):
    "The same as the outputs of a data folder."
    shutil.copytree(stressed_once, home/'out', dirs_exist_ok=True)
    return home

def test_the_table(stressed):
    r = s.read_stress('ml_test')
    assert [c.slug for c in r.cards] == ['names', 'fitted'] and r.readers() == ['names']
    (row,) = s.names_table(r)
    assert row['Rotated'] == '0.0' and row['Follows the name [95% CI]'].startswith('100.0') and row['Flips [95% CI]'] == s.UNSEEN and row['Changed by one order'] == '–'     # it goes by the name alone
    (row,) = s.names_table(r, ['fitted'])
    assert row['Letters'] == row['Flips [95% CI]'] == row['Follows the name [95% CI]'] == row['Changed by one order'] == 'n/a'
    assert r.found['fitted']['letters'] == 'n/a: fitted to the department question'

def test_effects(stressed):
    r = s.read_stress('ml_test')
    found = s.effects(r, ['names', 'fitted'], ['rotated', 'noise-1'])
    said = {(e.slug, e.condition): t['Verdict'] for e, t in zip(found, s.effects_table(r, found))}
    assert said['names', 'rotated'] == 'loses' and said['fitted', 'rotated'] == 'n/a' and ('fitted', 'noise-1') in said
    row = s.effects_table(r, found)[0]
    assert row['Points [95% CI]'].startswith('-100.0') and row['Only canonical / only changed right'] == '240 / 0'
    assert 'names' in s.effects_sentence(r, found, 'This').casefold()
    assert s.names_sentence(r) and s.order_sentence(r).startswith('1 of 1')

def test_a_small_effect_is_not_separated_and_its_interval_is_given(home):
    data, loud = load('ml_test'), Condition('loud', 'capitals', text=lambda t, _: t.upper())
    both(home/'out', data, Toy('reader', 'A', right_on(.9, 'a')), conditions=[loud])
    r = s.Stress('ml_test', data, [Toy('reader', 'A').card], {'reader': {c: frozen('reader', 'ml_test', data=data, condition=c) for c in ('canonical', 'loud')}})
    found = s.effects(r, ['reader'], ['loud'])
    d = found[0].result.difference
    assert found[0].result.verdict == 'not separated' and d.lo < 0 < d.hi
    assert s.effects_sentence(r, found, 'Capitals') == f'Capitals, 1 comparison: 1 not separated (intervals within {-100*d.hi:+.1f} to {-100*d.lo:+.1f} points).'
    row, = s.effects_table(r, [found[0]._replace(result=found[0].result._replace(p_holm=1e-9))])
    assert row['p (Holm)'] == '< 0.001'


# who can see the order

def ordered(home, *toys):
    both(home/'out', load('ml_test'), *toys, conditions=['order-1', 'order-2'])
    return s.read_stress('ml_test')

def near(share, pull):
    "Right on a share of the texts; the place of an option moves its score by a little, or a lot where the text allows it."
    def predict(texts, question):
        p = right_on(share, 'x')(texts, replace(question, criteria=tuple(sorted(question.criteria, key=lambda c: DEPARTMENT.options.index(c[0])))))
        at = [DEPARTMENT.options.index(o) for o in question.options]
        w = p[:, at] + pull*np.arange(len(at))
        return w/w.sum(axis=1, keepdims=True)
    return predict

def test_who_can_see_the_order_is_read_off_the_probabilities(home):
    r = ordered(home, Toy('apart', 'A', near(.9, 0)), Toy('rounding', 'A', near(.9, 1e-6)), Toy('leaning', 'A', near(.9, .001)), Toy('placed', 'A', near(.9, .5)))
    assert {x: s.order_blind(r, x) for x in r.readers()} == dict(apart=True, rounding=True, leaning=False, placed=False)
    assert r.flips('leaning').flipped == 0 < r.flips('placed').flipped          # it sees the order, and no answer changes
    data, found = load('ml_test'), r.found['placed']
    worst = max(abs(found[c].probs[i, k] - found['canonical'].probs[i, k]) for c in ('order-1', 'order-2') for i in range(len(data)) for k in range(3))
    assert s.order_change(r, 'placed') == pytest.approx(worst)

def test_the_order_is_judged_on_those_that_see_it(home):
    said = s.order_sentence(ordered(home, Toy('apart', 'A', near(.9, 0))))
    assert said.startswith('1 of 1 systems that were run cannot see the order (APART)') and said.endswith('nothing is found here about the order.')
    r = ordered(home, Toy('placed', 'B', near(.9, .5)))
    said = s.order_sentence(r)
    assert said.startswith('1 of 2') and f'PLACED can see it and changes {r.flips("placed").flipped} of 240' in said and 'nothing is found' not in said
    said = s.order_sentence(ordered(home, Toy('leaning', 'B', near(.9, .001))))
    assert 'Of the 2 that can see it, 1 change answers under some order: PLACED' in said and 'LEANING 0 of 240 (0.0 [0.0–1.6]%)' in said

def test_where_an_order_is_missing_or_there_are_only_labels_nothing_is_said_of_sight(stressed):
    data = load('ml_test')
    for condition in ('canonical', 'order-1', 'order-2'):
        p = frozen('names', 'ml_test', data=data, condition=condition)
        write_predictions(predictions_path('names', 'ml_test', condition), Predictions(replace(p.header, labels_only=True), data, np.eye(3)[p.probs.argmax(1)]))
    r = s.read_stress('ml_test')
    assert s.order_blind(r, 'names') is None and s.names_table(r)[0]['Order changes a probability by'] == 'n/a'
    assert 'Of the 1 that can see it or give labels only, 0 change' in s.order_sentence(r)
    (stressed/'out'/'systems'/'names'/'ml_test.order-2.jsonl').unlink()
    assert s.order_blind(s.read_stress('ml_test'), 'names') is None

def test_systems_that_were_not_run_are_named(stressed):
    r = s.read_stress('ml_test')
    assert [c.slug for c in r.missing] == ['alone']                              # fitted: the log says that no option condition applies
    assert s.not_run_sentence(r).endswith(': 1 of 2 systems (ALONE).') and s.not_run_sentence(s.Stress('x', r.data, [], {})).startswith('No system was run')
    run(Toy('alone', 'B'), load('ml_test'), ['letters'], stressed/'out')
    r = s.read_stress('ml_test')
    assert r.missing == [] and s.not_run_sentence(r).startswith('Every system')

def test_what_is_missing_is_said(stressed):
    (stressed/'out'/'systems'/'names'/'ml_test.order-2.jsonl').unlink()
    r = s.read_stress('ml_test')
    assert r.flips('names') == s.NOT_RUN and s.names_table(r)[0]['Flips [95% CI]'] == s.NOT_RUN

def test_an_old_versions_file_counts_as_not_run(stressed):
    path = stressed/'out'/'systems'/'names'/'system.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | {'version': 'another'}))
    assert [c.slug for c in s.read_stress('ml_test').cards] == ['fitted']

def test_nobody_was_run(home):
    r = s.read_stress('ml_test')
    assert r.cards == [] and s.names_table(r) == [] and s.effects(r, [], ['letters']) == []

def test_without_gold_there_is_no_accuracy(home):
    write_jsonl(home/'data'/'soft.jsonl', [dict(id='a', state='x', questions={'department': DEPARTMENT.to_json()}, gold={'department': {'probabilities': dict(billing=.5, technical=.5, other=0)}})])
    with pytest.raises(DataError, match='without one gold answer'): s.read_stress('soft')

def test_the_informed_come_best_first(home):
    data = load('ml_test')
    both(home/'out', data, Toy('fam-low', 'A', right_on(.5, 'a')), Toy('fam-high', 'A', right_on(.9, 'b')), Toy('other-one', 'A', right_on(.7, 'c')), conditions=['letters'])
    assert s.informed(s.read_stress('ml_test')) == ['fam-high', 'other-one', 'fam-low']

def test_one_answer_to_everything_is_no_stability(home):
    both(home/'out', load('ml_test'), Toy('same', 'A', table(lambda t, o, d, i: 9 if o == 'billing' else 1)), conditions=['order-1', 'order-2'])
    r = s.read_stress('ml_test')
    assert r.flips('same').rate == 0 and r.readers() == ['same'] and s.informed(r) == [] and s.order_sentence(r).startswith('No system that is better')

def test_labels_only_go_through(stressed):
    "Rows of one and zero, handed in by somebody else."
    data, r = load('ml_test'), None
    for condition in ('canonical', 'order-1', 'order-2', 'rotated'):
        p = frozen('names', 'ml_test', data=data, condition=condition)
        hard = np.eye(3)[p.probs.argmax(1)]
        write_predictions(predictions_path('names', 'ml_test', condition), Predictions(replace(p.header, labels_only=True), data, hard))
    (row,) = s.names_table(s.read_stress('ml_test'))
    assert row['Flips [95% CI]'].startswith('0.0') and row['Follows the name [95% CI]'].startswith('100.0')

@pytest.mark.parametrize('question,works', [
    (SEVEN, {'order-1', 'order-6', 'letters', 'numbers', 'opaque', 'rotated', 'names-only', 'descriptions-only', *TEXTS}),
    (SCORE, set(TEXTS)), (NOUL, {'names-only', *TEXTS})], ids=lambda q: getattr(q, 'type', ''))
def test_other_questions_go_through(home, question, works):
    "Seven options, a scale, and a yes or no; some items have no language."
    toy_data(home/'data'/'mine.jsonl', 42, question, meta=lambda i: {'language': 'ja'} if i % 2 else {})
    both(home/'out', load('mine'), Toy('user', 'A', by_all))
    r = s.read_stress('mine')
    assert works <= {n for n in r.found['user'] if r.has('user', n)} <= works | {f'order-{i}' for i in range(7)} | {'canonical'}
    (row,) = s.names_table(r, ['user'])
    f = r.flips('user')
    assert isinstance(f, Flips) and len(f.changed) == 6 and f.items == 42 if question is SEVEN else f.startswith('n/a') and row['Flips [95% CI]'] == 'n/a' and row['Rotated'] == 'n/a'
    found = s.effects(r, ['user'], [*CONDITIONS])
    assert len(s.effects_table(r, found)) == len(CONDITIONS)
    for text in (s.order_sentence(r), s.names_sentence(r), s.effects_sentence(r, found, 'All')): assert text
    assert set(s.changed_share(load('mine'), CONDITIONS['noise-2'])) == {'ja'}

def test_many_questions_in_one_file(home):
    rows = [i.to_row() for q in (SEVEN, DEPARTMENT) for i in toy_items(14, q, id=lambda i: f'{q.name}{i}')]
    write_jsonl(home/'data'/'two.jsonl', rows)
    both(home/'out', load('two'), Toy('user', 'A', by_all))
    r = s.read_stress('two')
    p = r.found['user']['rotated']
    assert set(p.header.shown) == {'queue', 'department'} and follows_name(p)[1] == 28 and len(r.flips('user').changed) == 6


# the reading of noisy texts

def test_the_sample_asks_each_item_once():
    data = load('ml_test')
    sample = s.label_sample(data, {'noise-3': 2, 'noise-1': 1})
    assert len({r['id'] for r in sample}) == len(sample) == 36 and sample == s.label_sample(data, {'noise-3': 2, 'noise-1': 1}) and not any('gold' in r or 'label' in r for r in sample)

def test_the_reading(tmp_path):
    data = load('ml_test')
    path, sample = tmp_path/'read.jsonl', s.label_sample(data, {'noise-3': 1})
    gold = {i.id: i.gold for i in data}
    write_jsonl(path, [r | dict(label=gold[r['id']] if n else 'nonsense', reader='me') for n, r in enumerate(sample)])
    assert [r['kept'] for r in s.label_check(data, path)] == [False] + [True]*11
    write_jsonl(path, [sample[0] | dict(label='other', reader='me', state='another text')])
    with pytest.raises(DataError, match='read it again'): s.label_check(data, path)
    write_jsonl(path, [sample[0] | dict(label='other', reader='me', id='nobody')])
    with pytest.raises(DataError, match='no such item'): s.label_check(data, path)
    assert s.label_check(data, tmp_path/'none.jsonl') == []


def test_a_reading_bounds_what_the_noise_may_do():
    from polyroute.metrics import wilson
    blind, again = [dict(kept=n < 97, reader='Ada, which saw little') for n in range(100)], [dict(kept=True, reader='Ada, which saw little', note='again')]*20
    said = s.reading_sentence(blind + again, [.053, .081])
    lo, hi = wilson(97, 100)
    assert f'Read blind, 97 of 100 labels were kept ({100*lo:.1f} to {100*hi:.1f}%), so up to {100*(1 - lo):.1f} points' in said and 'systems lose 5.3 to 8.1 points' in said
    assert '20 more texts were read again' in said and 'Ada, which saw little' in said and 'their own' not in said
    assert 'was read blind' in s.reading_sentence(again, [.05]) and 'systems lose' not in s.reading_sentence(blind, [])
    rows = s.reading_rows(blind + again)
    assert [(r['How it was read'], r['Texts read'], r['Reader']) for r in rows] == [('blind', 100, 'Ada, which saw little'), ('again', 20, 'Ada')]

def test_the_released_readings_say_which_were_not_blind():
    read = s.label_check(load('ml_test'))
    rows = s.reading_rows([r for r in read if r['condition'] == 'noise-3'])
    assert sum(r['Texts read'] for r in rows) == sum(r['condition'] == 'noise-3' for r in read) and len(rows) > 1
    assert all('saw the noisy text alone' not in r['Reader'] for r in rows if r['How it was read'] != 'blind')


# what is frozen here

def test_frozen_conditions_are_the_declared_ones():
    "A condition that shows something else now needs its predictions run again."
    wrong, seen = [], 0
    for split in s.PLAN:
        data = load(split)
        for c in conditions_for(data):
            found = [p for card in cards() if (p := predictions.find_predictions(predictions_path(card.slug, split, c.name, card.declared_seed)))]
            digest = s._digest(show(data, c)) if found else ''
            wrong += [str(p) for p in found if read_header(p).version.partition('+')[2] not in ('', digest)]
            seen += len(found)
    assert seen and not wrong


# the command (in 90_cli)

from polyroute.cli import main
def test_the_command_runs_and_keeps(home, monkeypatch):
    (home/'mine_cli.py').write_text('import numpy as np\nfrom polyroute.stress import Condition\nfrom polyroute.systems import Card\nclass S:\n    card = Card("mine", "Mine", "A", "A toy.", "none")\n'
                                    '    def predict(self, t, q): return np.tile([1/len(q.options)]*len(q.options), (len(t), 1))\nloud = Condition("loud", "capitals", text=lambda t, _: t.upper())\n')
    monkeypatch.syspath_prepend(str(home))
    r = CliRunner().invoke(main, ['stress', 'mine_cli:S', '--condition', 'rotated', '--condition', 'mine_cli:loud', '--split', 'ml_test'])
    assert r.exit_code == 0 and 'rotated: computed' in r.output and 'loud: computed' in r.output
    r = CliRunner().invoke(main, ['stress', 'mine_cli:S', '--json'])
    did = json.loads(r.output)['mine_cli:S']
    assert did['ml_test']['rotated'] == 'kept' and set(did['mix_test']) == {'order-1', 'order-2'} and len(did['ml_test']) == 2 + len(CONDITIONS)

def test_the_command_shows_what_is_frozen(stressed):
    r = CliRunner().invoke(main, ['stress'])
    assert r.exit_code == 0 and 'Follows the name' in r.output and 'NAMES' in r.output
    assert json.loads(CliRunner().invoke(main, ['stress', '--json']).output)['ml_test'][0]['Rotated'] == '0.0'
    for bad in (['stress', '--condition', 'letters'], ['stress', 'nobody'], ['stress', 'tfidf-base', '--condition', 'nothing']): assert CliRunner().invoke(main, bad).exit_code != 0


@pytest.mark.parametrize('call', [lambda: s.truncated('abc def', share=0), lambda: s.truncated('abc def', share=2), lambda: s.noise('abc', level=9)])
def test_shares_and_levels_have_ranges(call):
    with pytest.raises(ValueError): call()
