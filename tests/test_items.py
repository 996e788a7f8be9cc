"Rows, questions and data sets: every bad file is refused with its place, and every text survives unchanged."
import json
import os
import stat
import numpy as np
import pytest
from hypothesis import given, strategies as st
from conftest import fast, toy_items, tree
from polyroute import items
from polyroute.items import (DEPARTMENT, LANGUAGES, TWELVE, VARIETIES, WITHHELD, DataError, Dataset, Item, Question, data_dir, load, outputs_dir,
                             parse_items, parse_rows, read_items, reference, sha256, write_atomic, write_jsonl)

D = DEPARTMENT.to_json()
SCORE = {'type': 'score', 'instructions': 'How urgent?', 'criteria': ['none', 'low', 'mid', 'high']}
NOUL = {'type': 'noul', 'instructions': 'Is there a date?'}
ODD = {'right to left': 'أريد استرداد المبلغ ‏(١٢٫٥٠)‎ שלום', 'joiners': '👩\u200d👩\u200d👧\u200d👦 क्\u200dष', 'combining': 'e\u0301 \u0e01\u0e33\u0e49 Z\u0351\u036b\u0343', 'U+2028': 'one\u2028two\u2029three\x85four\x0bfive\x0csix',
       'carriage return': 'a\rb\r\nc', 'empty': '', 'white space': ' \t\n ', 'NUL': 'a\0b', 'astral': '𒀀😀𝒜', 'bidi override': '\u202eabc\u202c', 'BOM inside': 'a\ufeffb', 'not normalised': 'Å Å Å'}


def row(id='a', state='Where is my refund?', **kw): return {'id': id, 'state': state, 'questions': {'department': D}, 'expected': {'department': 'billing'}, **kw}
def line(r): return json.dumps(r, ensure_ascii=True)

def write(tmp_path, data, name='f.jsonl'):
    path = tmp_path/name
    path.write_bytes(data if isinstance(data, bytes) else data.encode('utf-8'))
    return path

def refused(path, line_no, id, *words, **kw):
    "Check that a file is refused with its place and with what would be right."
    with pytest.raises(DataError) as e: read_items(path, **kw)
    assert (str(e.value.path), e.value.line, e.value.id) == (str(path), line_no, id)
    assert str(path) in str(e.value) and (line_no is None or f'line {line_no}' in str(e.value)) and (id is None or repr(id) in str(e.value))
    for w in words: assert w in str(e.value), (w, str(e.value))
    return str(e.value)


# files

GOOD = line(row())

@pytest.mark.parametrize('bad, id, words', [
    ('not json', None, ['JSON object on one line']),
    ('{"id": "b"', None, ['JSON object on one line']),
    ('["b"]', None, ['JSON object', 'list']),
    ('null', None, ['JSON object', 'NoneType']),
    ('{} {}', None, ['JSON object on one line']),
    ('{"id": "b", "id": "c"}', None, ["'id'", 'twice']),
    ('['*100_000, None, ['too deeply']),
    ('{"id": "b", "state": ' + '1'*5000 + '}', None, ['JSON object on one line']),
    (line({k: v for k, v in row('b').items() if k != 'id'}), None, ['"id"', 'non-empty string']),
    (line(row('')), '', ['"id"', 'non-empty string']),
    (line(row(7)), None, ['"id"', 'non-empty string']),
    (line({k: v for k, v in row('b').items() if k != 'state'}), 'b', ['"state"', 'text']),
    (line(row('b', 5)), 'b', ['"state"', 'text']),
    (line(row('b', None)), 'b', ['"state"', 'text']),
    (line({k: v for k, v in row('b').items() if k != 'questions'}), 'b', ['"questions"', 'at least one']),
    (line(row('b', questions={})), 'b', ['"questions"', 'at least one']),
    (line(row('b', questions=[])), 'b', ['"questions"', 'at least one']),
    (line({k: v for k, v in row('b').items() if k != 'expected'}), 'b', ['expected', 'billing, technical, other']),
    (line(row('b', expected={'other question': 'billing'})), 'b', ["'department'", 'billing, technical, other']),
    (line(row('b', expected={'department': 'sales'})), 'b', ["'sales'", 'billing, technical, other']),
    (line(row('b', expected={'department': 'Billing'})), 'b', ["'Billing'", 'billing, technical, other']),
    (line(row('b', expected={'department': None})), 'b', ['None', 'billing, technical, other']),
    (line(row('b', expected={'department': ['billing']})), 'b', ['billing, technical, other']),
    (line(row('b', expected='billing')), 'b', ['objects']),
    (line(row('b', meta=['de'])), 'b', ['objects']),
    (line(row('a')), 'a', ['line 1 already', 'unique']),
    (line(row('b', 'half \ud83d pair')), 'b', ['surrogate']),
    (line(row('b', questions={'department': {**D, 'type': 'chioce'}})), 'b', ["'chioce'", 'choice, score, noul']),
    (line(row('b', questions={'department': 'choice'})), 'b', ['type, instructions and criteria']),
    (line(row('b', questions={'department': {**D, 'criteria': {'billing': ''}}})), 'b', ['at least two options']),
    (line(row('b', questions={'department': {**D, 'criteria': {'billing': 1, 'other': 2}}})), 'b', ['must be text']),
    (line(row('b', questions={'department': {'type': 'choice', 'instructions': '?'}})), 'b', ['criteria']),
    (line(row('b', questions={'department': {**D, 'criteria': [1, '1']}})), 'b', ['stands twice']),
    (line(row(['b'])), None, ['"id"']),
    (line(row('b', questions={'department': {**D, 'instructions': None}})), 'b', ['instructions', 'text']),
    (line(row('b', questions={'q': SCORE}, expected={'q': 4})), 'b', ['4', '0, 1, 2, 3']),
    (line(row('b', questions={'q': SCORE}, expected={'q': True})), 'b', ['True', '0, 1, 2, 3']),
    (line(row('b', questions={'q': SCORE}, expected={'q': 1.5})), 'b', ['1.5', '0, 1, 2, 3']),
    (line(row('b', questions={'q': {**SCORE, 'criteria': {'0': 'none', '1': 'some'}}}, expected={'q': 1})), 'b', ['list of level descriptions']),
    (line(row('b', questions={'q': NOUL}, expected={'q': 1})), 'b', ['1', 'false, true']),
    (line(row('b', questions={'q': {**NOUL, 'criteria': {'yes': '', 'no': ''}}}, expected={'q': True})), 'b', ['"false" and "true"']),
    (line(row('b', expected={}, gold={'department': {'billing': 1}})), 'b', ['probabilities']),
    (line(row('b', expected={}, gold={'department': {'probabilities': {'billing': .5, 'technical': .5}}})), 'b', ['billing, technical, other']),
    (line(row('b', expected={}, gold={'department': {'probabilities': {'billing': .5, 'technical': .2, 'other': 0}}})), 'b', ['sum to 1']),
    (line(row('b', expected={}, gold={'department': {'probabilities': {'billing': 1.5, 'technical': -.5, 'other': 0}}})), 'b', ['at least 0']),
    (line(row('b', expected={}, gold={'department': {'probabilities': {'billing': float('nan'), 'technical': 1, 'other': 0}}})), 'b', ['sum to 1']),
    (line(row('b', expected={}, gold={'department': {'probabilities': {'billing': '1', 'technical': 0, 'other': 0}}})), 'b', ['number']),
    (line(row('b', expected={}, gold={'department': {'probabilities': {'billing': 1, 'technical': False, 'other': 0}}})), 'b', ['number']),
    (line(row('b', expected={}, gold={'department': {'probabilities': {'billing': 10**400, 'technical': 0, 'other': 0}}})), 'b', ['sum to 1']),
], ids=lambda x: x[:40] if isinstance(x, str) else '')
def test_bad_line(tmp_path, bad, id, words):
    refused(write(tmp_path, f'{GOOD}\n\n{bad}\n'), 3, id, *words)

@pytest.mark.parametrize('what', ['id', 'option', 'description', 'instructions', 'question', 'meta'])
def test_half_of_a_surrogate_pair_is_refused_wherever_it_would_be_written_again(tmp_path, what):
    half = '\ud800'
    q = {'type': 'choice', 'instructions': half if what == 'instructions' else '?', 'criteria': {half if what == 'option' else 'a': half if what == 'description' else '', 'b': ''}}
    name = half if what == 'question' else 'q'
    path = write(tmp_path, line({'id': half if what == 'id' else 'x', 'state': 's', 'questions': {name: q}, 'expected': {name: 'b'}, 'meta': {'language': half} if what == 'meta' else {}}) + '\n')
    with pytest.raises(DataError, match='surrogate') as e: read_items(path)
    assert e.value.line == 1

def test_an_option_that_stands_twice_in_a_list_is_refused(tmp_path):
    path = write(tmp_path, line(row(questions={'q': {'type': 'choice', 'instructions': '?', 'criteria': ['a', 'b', 'a']}}, expected={'q': 'a'})) + '\n')
    refused(path, 1, 'a', "'a'")

def test_a_whole_surrogate_pair_is_a_character(tmp_path):
    assert read_items(write(tmp_path, '{"id": "a", "state": "\\ud83d\\ude00", "questions": {"department": %s}, "expected": {"department": "other"}}' % json.dumps(D)))[0].state == '😀'

def test_missing_and_empty_files(tmp_path):
    refused(tmp_path/'none.jsonl', None, None, 'no such file')
    refused(tmp_path, None, None, 'no such file')
    for data in ('', '\n\n', ' \t\r\n', b'\xef\xbb\xbf'): refused(write(tmp_path, data), None, None, 'no rows')

def test_accepted_on_purpose(tmp_path):
    plain = read_items(write(tmp_path, f'{GOOD}\n{line(row("b"))}\n'))
    for data in (f'\ufeff{GOOD}\n{line(row("b"))}\n', f'{GOOD}\r\n{line(row("b"))}\r\n', f'{GOOD}\n\n \t\n{line(row("b"))}', f'  {GOOD}\t\n{line(row("b"))}\n\n'):
        assert read_items(write(tmp_path, data)).items == plain.items

@pytest.mark.parametrize('bom', [b'', b'\xef\xbb\xbf'], ids=['plain', 'BOM'])
@pytest.mark.parametrize('bad', [b'\xff', b'\xc3(', b'\xed\xa0\x80', b'\xe2\x82'], ids=['FF', 'broken', 'surrogate', 'cut'])
def test_invalid_utf8_names_the_line(tmp_path, bom, bad):
    refused(write(tmp_path, bom + b'\n\n' + bad), 3, None, 'UTF-8')
    refused(write(tmp_path, bom + GOOD.encode() + b'\n{"id": "' + bad + b'"}\n'), 2, None, 'UTF-8')

def test_utf16_is_refused(tmp_path):
    refused(write(tmp_path, f'{GOOD}\n'.encode('utf-16')), 1, None, 'UTF-8')

@pytest.mark.parametrize('state', ODD.values(), ids=ODD)
def test_odd_texts_survive(tmp_path, state):
    path = write_jsonl(tmp_path/'f.jsonl', [row(state=state), row('b', state + state)])
    assert read_items(path).states == [state, state + state]
    assert read_items(write(tmp_path, f'{line(row(state=state))}\n', 'g.jsonl')).states == [state]       # escaped as well

@fast
@given(st.lists(st.text(st.characters(exclude_categories=['Cs']), max_size=20), min_size=1, max_size=5))
def test_any_text_survives(tmp_path_factory, states):
    folder = tmp_path_factory.mktemp('t')
    made = [Item(f'{i}', s, DEPARTMENT, 'other', None, {'note': s}) for i, s in enumerate(states)]
    path = write_jsonl(folder/'f.jsonl', (i.to_row() for i in made))
    assert read_items(path).items == made
    again = write_jsonl(folder/'g.jsonl', (i.to_row() for i in read_items(path)))
    assert path.read_bytes() == again.read_bytes()

def test_a_very_long_text(tmp_path):
    long = 'ரொம்ப 👩\u200d💻 ' * 60_000                                                            # more than a megabyte
    assert read_items(write_jsonl(tmp_path/'f.jsonl', [row(state=long)])).states == [long]
    message = refused(write_jsonl(tmp_path/'f.jsonl', [row('b', long, expected={})]), 1, 'b', 'expected')
    assert len(message) < 1000
    assert len(refused(write(tmp_path, f'{GOOD}\n{{"id": "b", "state": "{long}\n', 'g.jsonl'), 2, None, 'JSON object')) < 1000

json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(['billing', 'choice', 'score', 'noul']),
                           lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(['department', 'type', 'criteria', 'instructions', 'probabilities', 'billing', 'technical', 'other', 'language']), x, max_size=3), max_leaves=8)

@fast
@given(st.dictionaries(st.sampled_from(['id', 'state', 'questions', 'expected', 'gold', 'meta']), json_values))
def test_any_row_is_read_or_refused(changes):
    try: found = parse_items({**row(), **changes})
    except ValueError: return
    data = Dataset('x', found)
    assert all(i.gold is not None or i.soft is not None for i in data)
    for key in ('language', 'script', 'tier', 'variety'): assert data.field(key).shape == (len(data),) and isinstance(data.groups(key), dict)

@pytest.mark.parametrize('data', [b'\x00', b'{"a": NaN}', b'{"a": 1e999}', b'{"a":1}\x00', b'\xef\xbb\xbf\xef\xbb\xbf{}'])
def test_odd_bytes_are_read_or_refused(data):
    try: assert all(isinstance(r, dict) for _, r in parse_rows(data))
    except DataError as e: assert e.line == 1


# questions

def test_three_types():
    s, n = Question.from_json('q', SCORE), Question.from_json('q', NOUL)
    assert s.options == ('0', '1', '2', '3') and s.descriptions == ('none', 'low', 'mid', 'high') and s.option(2) == s.option('2') == '2' and s.expected('2') == 2
    assert n.options == ('false', 'true') and n.option(True) == n.option('true') == 'true' and n.expected('false') is False
    c = Question.from_json('q', {'type': 'choice', 'instructions': '?', 'criteria': ['x', 'y']})
    assert c.options == ('x', 'y') and c.descriptions == ('', '') and c.expected('x') == 'x'

@pytest.mark.parametrize('q', [D, SCORE, NOUL, {**NOUL, 'criteria': {'false': 'no', 'true': 'yes'}}, {'type': 'choice', 'instructions': '', 'criteria': {c: c*3 for c in 'abcdefg'}}, {**SCORE, 'criteria': ['']*7}])
def test_questions_survive(q):
    made = Question.from_json('q', q)
    assert Question.from_json('q', made.to_json()) == made and len(set(made.options)) == len(made.options)
    for o in made.options: assert made.option(made.expected(o)) == o

def test_criteria_of_a_noul_question_are_in_one_order():
    assert Question.from_json('q', {**NOUL, 'criteria': {'true': 'yes', 'false': 'no'}}) == Question.from_json('q', {**NOUL, 'criteria': {'false': 'no', 'true': 'yes'}})

def test_several_questions_in_a_row_are_several_items(tmp_path):
    path = write_jsonl(tmp_path/'f.jsonl', [row(questions={'department': D, 'urgency': SCORE, 'date': NOUL}, expected={'department': 'other', 'urgency': 3, 'date': False})])
    data = read_items(path)
    assert data.ids.tolist() == ['a-department', 'a-urgency', 'a-date'] and data.gold.tolist() == [2, 3, 0]
    assert [q.name for q, _ in data.by_question()] == ['department', 'urgency', 'date'] and len(data.department()) == 1
    with pytest.raises(DataError, match='one question'): data.question

def test_items_of_different_rows_cannot_share_an_id(tmp_path):
    path = write_jsonl(tmp_path/'f.jsonl', [row(questions={'department': D, 'urgency': SCORE}, expected={'department': 'other', 'urgency': 3}), row('a-urgency')])
    refused(path, 2, 'a-urgency', 'line 1 already')

def test_soft_gold(tmp_path):
    soft = {'other': .5, 'billing': .25, 'technical': .25}
    data = read_items(write_jsonl(tmp_path/'f.jsonl', [row(expected={}, gold={'department': {'probabilities': soft}})]))
    assert data.soft.tolist() == [[.25, .25, .5]] and data.gold.tolist() == [-1] and data.field('gold').tolist() == ['']
    both = read_items(write_jsonl(tmp_path/'g.jsonl', [row(gold={'department': {'probabilities': soft}}), row('b')]))
    assert both.soft is None and both.gold.tolist() == [0, 0]           # soft only where every item is

def test_soft_gold_of_questions_with_different_k_is_padded(tmp_path):
    q7 = {'type': 'choice', 'instructions': '?', 'criteria': {c: '' for c in 'abcdefg'}}
    data = read_items(write_jsonl(tmp_path/'f.jsonl', [row('a', questions={'q': NOUL}, expected={}, gold={'q': {'probabilities': {'true': .25, 'false': .75}}}),
                                                       row('b', questions={'r': q7}, expected={}, gold={'r': {'probabilities': {c: float(c == 'g') for c in 'abcdefg'}}})]))
    assert data.soft.tolist() == [[.75, .25, 0, 0, 0, 0, 0], [0]*6 + [1]]


# data sets

def test_groups_and_selection():
    data = Dataset('x', toy_items(36))
    assert list(data.groups('language')) == [c for c in LANGUAGES if c != 'en'] and all(len(ix) == 3 for ix in data.groups('language').values())
    assert list(data.groups('script_group')) == ['Latin', 'Cyrillic', 'Arabic', 'Indic', 'CJK + Hangul'] and list(data.groups('tier')) == ['high', 'mid', 'low']
    assert sorted(np.concatenate(list(data.groups('script').values()))) == list(range(36))
    assert data.groups('variety') == {} and set(data.field('variety')) == {''}
    half = data.select(np.arange(36) % 2 == 0)
    assert half.ids.tolist() == data.ids[::2].tolist() and data.select([3, 1]).ids.tolist() == ['i003', 'i001'] and len(data.select(np.zeros(36, dtype=bool))) == 0
    assert (half.name, half.sha256) == (data.name, data.sha256)

def test_own_meta_wins_over_the_language():
    data = Dataset('x', [Item('a', '', DEPARTMENT, 'other', None, {'language': 'de', 'script': 'Fraktur'}), Item('b', '', DEPARTMENT, 'other', None, {'language': 'fr'}), Item('c', '', DEPARTMENT, 'other')])
    assert data.field('script').tolist() == ['Fraktur', '', ''] and data.field('language').tolist() == ['de', 'fr', '']
    assert list(data.groups('language')) == ['de', 'fr'] and data.groups('tier') == {'high': pytest.approx(np.array([0]))}

def test_meta_of_any_type_does_not_stop_grouping():
    data = Dataset('x', [Item('a', '', DEPARTMENT, 'other', None, {'language': ['de', 'en'], 'n': 5})])
    assert data.groups('n').keys() == {'5'} and data.groups('script') == {}

def test_items_with_soft_gold_can_be_put_in_a_set():
    assert len({Item('a', '', DEPARTMENT, None, {'billing': 1., 'technical': 0., 'other': 0.}), Item('a', '', DEPARTMENT, None, {'billing': 1., 'technical': 0., 'other': 0.})}) == 1

def test_clusters_are_the_source_or_the_item():
    data = Dataset('x', [Item('a', '', DEPARTMENT, 'other', None, {'cluster': 7}), Item('b', '', DEPARTMENT, 'other', None, {'cluster': '7'}), Item('c', '', DEPARTMENT, 'other')])
    assert data.clusters.tolist() == ['7', '7', 'c']

def test_languages():
    assert len(TWELVE) == 12 and set(WITHHELD) < set(TWELVE) and [l.direction for l in LANGUAGES.values()].count('rtl') == 1
    card = {r['code']: (r['language'], r['script'], r['tier']) for r in reference()['table2_data_card']}
    assert card == {c: (LANGUAGES[c].name, LANGUAGES[c].script, LANGUAGES[c].tier) for c in TWELVE}
    assert list(VARIETIES.values()) == [r['variety'] for r in reference()['table3_code_mixed']]


# published totals

def test_published_data_card_totals():
    card = reference()['table2_data_card']
    assert sum(r['n'] for r in card) == 322 and [sum(r[d] for r in card) for d in DEPARTMENT.options] == [118, 116, 88]
    assert all(r['n'] == sum(r[d] for d in DEPARTMENT.options) for r in card)
    assert sum(r['native_train_rows'] for r in card) == 967 and sum(r['native_train_rows'] for r in card if r['code'] in WITHHELD) == 321
    mixed = reference()['table3_code_mixed']
    assert sum(r['n'] for r in mixed) == 156 and all(r['n'] == sum(r[d] for d in DEPARTMENT.options) for r in mixed)
    tracks = {r['model']: r for r in reference()['table5_tracks']}
    assert tracks['ML fine-tune, all native rows']['rows'] == 2818 + 967 and tracks['ML fine-tune, 4 languages withheld']['rows'] == 2818 + 967 - 321


# writing

def test_writing_is_atomic(tmp_path, monkeypatch):
    path = write_atomic(tmp_path/'deep'/'f', 'old')
    def full(*a): raise OSError(28, 'No space left on device')
    for name in ('fsync', 'replace', 'chmod'):
        with monkeypatch.context() as mp:
            mp.setattr(items.os, name, full)
            with pytest.raises(OSError, match='No space'): write_atomic(path, 'new')
        assert tree(tmp_path) == {'deep/f': b'old'}                      # neither a part nor a temporary file
    with pytest.raises(UnicodeEncodeError): write_atomic(path, 'half \ud800')
    assert tree(tmp_path) == {'deep/f': b'old'}

def test_written_files_have_ordinary_rights(tmp_path):
    plain = tmp_path/'plain'; plain.write_text('')
    assert stat.S_IMODE(os.stat(write_atomic(tmp_path/'f', '')).st_mode) == stat.S_IMODE(os.stat(plain).st_mode)

def test_text_is_written_as_it_is(tmp_path):
    assert write_atomic(tmp_path/'f', 'a\r\nb\u2028é').read_bytes() == 'a\r\nb\u2028é'.encode()
    assert write_jsonl(tmp_path/'g', []).read_bytes() == b''


# where things are

def test_resolver(tmp_path, monkeypatch):
    for name, get in (('POLYROUTE_DATA', data_dir), ('POLYROUTE_OUTPUTS', outputs_dir)):
        monkeypatch.delenv(name, raising=False)
        checkout = get()
        assert checkout.is_dir() and (checkout.parent/'settings.ini').is_file()
        monkeypatch.setenv(name, str(tmp_path)); assert get() == tmp_path
        monkeypatch.setenv(name, ''); assert get() == checkout
    monkeypatch.setenv('POLYROUTE_DATA', str(tmp_path))
    assert reference()['audit']['n'] == 322                             # published numbers come with the package, whatever the data

def test_installed_package(tmp_path, monkeypatch):
    import polyroute
    (tmp_path/'polyroute').mkdir()
    monkeypatch.delenv('POLYROUTE_DATA', raising=False)
    monkeypatch.setattr(polyroute, '__file__', str(tmp_path/'polyroute'/'__init__.py'))
    assert data_dir() == tmp_path/'polyroute'/'_data'
    (tmp_path/'data').mkdir()
    assert data_dir() == tmp_path/'polyroute'/'_data'                    # any folder named data beside site-packages is not ours

def test_load_says_what_there_is(home):
    with pytest.raises(DataError) as e: load('ml_tset')
    assert 'ml_test' in str(e.value) and 'mix_test' in str(e.value) and str(home/'data') in str(e.value)
    assert load('ml_test').sha256 == sha256(home/'data'/'ml_test.jsonl') and load('ml_test').name == 'ml_test'


# files of the original paper

@pytest.fixture
def original(tmp_path, monkeypatch):
    "A folder with a file that carries neither ids nor languages, known by its digest."
    rows = [{k: v for k, v in i.to_row().items() if k not in ('id', 'meta')} for i in toy_items(24)]
    path = write_jsonl(tmp_path/'ml_test.jsonl', rows)
    monkeypatch.setenv('POLYROUTE_DATA', str(tmp_path))
    digest = sha256(path)
    monkeypatch.setattr(items, 'original_prefixes', lambda: {'ml_test': digest[:20]})
    return path

def test_original_file_without_languages(original):
    data = load('ml_test')
    assert data.ids.tolist() == [f'ml_test-{i:04d}' for i in range(24)] and data.groups('language') == {} and data.groups('script') == {}

def test_original_file_with_a_sidecar(original):
    write_jsonl(original.with_suffix('.meta.jsonl'), [{'row': i, 'language': TWELVE[i % 12]} for i in range(24)])
    data = load('ml_test')
    assert data.field('language').tolist() == [TWELVE[i % 12] for i in range(24)] and list(data.groups('script_group')) == ['Latin', 'Cyrillic', 'Arabic', 'Indic', 'CJK + Hangul']

def test_sidecar_by_id(original):
    write_jsonl(original.with_suffix('.meta.jsonl'), [{'id': 'ml_test-0003', 'language': 'ta'}])
    assert load('ml_test').groups('language')['ta'].tolist() == [3]

@pytest.mark.parametrize('bad', [{'language': 'de'}, {'row': 1.5, 'language': 'de'}, {'row': [1]}])
def test_sidecar_without_a_key_is_refused(original, bad):
    write_jsonl(original.with_suffix('.meta.jsonl'), [{'row': 0, 'language': 'de'}, bad])
    with pytest.raises(DataError, match='"row".*or "id"') as e: load('ml_test')
    assert e.value.line == 2 and 'meta' in str(e.value.path)

@pytest.mark.parametrize('bad', [{'row': 24, 'language': 'de'}, {'row': -1, 'language': 'de'}, {'id': 'ml_test-9999', 'language': 'de'}, {'row': 0, 'language': 'fr'}], ids=str)
def test_sidecar_rows_that_match_nothing_or_stand_twice_are_refused(original, bad):
    write_jsonl(original.with_suffix('.meta.jsonl'), [{'row': 0, 'language': 'de'}, bad])
    with pytest.raises(DataError) as e: load('ml_test')
    assert e.value.line == 2

@pytest.mark.parametrize('change, words', [(dict(meta=['de']), 'must be objects'), (dict(id=['a']), '"id"'), (dict(id={}), '"id"'), (dict(id=0), '"id"')], ids=str)
def test_rows_of_the_wrong_kind_beside_a_sidecar_are_refused(tmp_path, change, words):
    path = write(tmp_path, line(row() | change) + '\n')
    with pytest.raises(DataError, match=words) as e: read_items(path, sidecar=write_jsonl(tmp_path/'side.jsonl', [{'row': 0, 'language': 'de'}]))
    assert e.value.line == 1

def test_a_row_of_the_wrong_kind_is_no_key_of_the_sidecar(tmp_path):
    path = write(tmp_path, line(row('a')) + '\n' + line(row('b') | dict(id=0)) + '\n')       # 0 is the first row's position, not this row's name
    with pytest.raises(DataError) as e: read_items(path, sidecar=write_jsonl(tmp_path/'side.jsonl', [{'row': 0, 'language': 'de'}]))
    assert e.value.line == 2

def test_other_files_still_need_ids(original):
    original.write_bytes(original.read_bytes() + b'\n')
    with pytest.raises(DataError, match='"id"') as e: load('ml_test')
    assert e.value.line == 1
