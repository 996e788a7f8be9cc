"Predictions files: what is written is what is read, and every fault is named with its place."
import gzip
import json
import numpy as np
import pytest
from hypothesis import given, strategies as st
from conftest import even, fast, lines_of, toy_data
from polyroute import predictions as pr
from polyroute.items import DEPARTMENT, DataError, Item, Question, read_items, write_jsonl
from polyroute.predictions import (Header, Predictions, find_predictions, frozen, predictions_path, read_header, read_predictions,
                                   read_probabilities, tolerance, write_predictions)

OPTIONS = DEPARTMENT.options

@pytest.fixture
def data(tmp_path): return toy_data(tmp_path/'toy.jsonl', 3)

def head(data, **kw): return Header(**dict(system='s', split='toy', data_sha256=data.sha256, options={q.name: list(q.options) for q, _ in data.by_question()}) | kw)
def ok(id, *p): return json.dumps({'id': id, 'probabilities': dict(zip(OPTIONS, p or (.2, .3, .5)))})
def lines(data): return [ok(i) for i in data.ids]

def put(tmp_path, text, name='p.jsonl'):
    (tmp_path/name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return tmp_path/name

def file(tmp_path, data, body, header=None, name='p.jsonl'):
    return put(tmp_path, '\n'.join([json.dumps(header or head(data).to_json()), *body]) + '\n', name)

def refused(path, data, line, id, *words):
    with pytest.raises(DataError) as e: read_predictions(path, data)
    assert (str(e.value.path), e.value.line, e.value.id) == (str(path), line, id), str(e.value)
    for w in words: assert w in str(e.value), (w, str(e.value))


# faults in a line

P = lambda **p: json.dumps({'id': 'i001', 'probabilities': p})
RAW = lambda p: '{"id": "i001", "probabilities": %s}' % p

@pytest.mark.parametrize('bad, id, words', [
    ('oops', None, ['JSON object']),
    ('[]', None, ['JSON object']),
    ('{"probabilities": {}}', None, ['"id"']),
    ('{"id": 1}', None, ['"id"']),
    ('{"id": "i001"}', 'i001', ['probabilities', 'billing, technical, other']),
    (RAW('null'), 'i001', ['billing, technical, other']),
    (RAW('"billing"'), 'i001', ['billing, technical, other']),
    (P(billing=.5, technical=.5), 'i001', ["'other'"]),
    (P(billing=.5, technical=.25, sales=.25), 'i001', ["'sales'", 'billing, technical, other']),
    (P(billing=.5, technical=.25, other=.25, sales=0), 'i001', ["'sales'", 'billing, technical, other']),
    (RAW('{"billing": NaN, "technical": 0.5, "other": 0.5}'), 'i001', ['nan', 'between 0 and 1']),
    (RAW('{"billing": Infinity, "technical": 0.5, "other": 0.5}'), 'i001', ['inf', 'between 0 and 1']),
    (P(billing=-.1, technical=.6, other=.5), 'i001', ['-0.1', 'between 0 and 1']),
    (P(billing=.1, technical=.3, other=.3), 'i001', ['0.7', 'sum to 1']),
    (P(billing=1, technical=1, other=1), 'i001', ['3', 'sum to 1']),
    (P(billing=0, technical=0, other=0), 'i001', ['sum to 1']),
    (P(billing='0.5', technical=.25, other=.25), 'i001', ['"0.5"', 'number']),
    (P(billing=None, technical=.5, other=.5), 'i001', ['null', 'number']),
    (P(billing=True, technical=0, other=0), 'i001', ['true', 'number']),
    (RAW('{"billing": 1%s, "technical": 0, "other": 0}' % ('0'*400)), 'i001', ['between 0 and 1']),
    (RAW('[0.5, 0.5]'), 'i001', ['2 probabilities', '3 options']),
    (RAW('[0.5, 0.5, "0"]'), 'i001', ['number']),
    (RAW('{"billing": 0.5, "billing": 0.5, "other": 0.5}'), None, ["'billing'", 'twice']),
    (ok('i009'), 'i009', ['no such item']),
    (ok('i000'), 'i000', ['line 2 already']),
    ('{"id": "i001", "ms": "fast", "probabilities": {"billing": 1, "technical": 0, "other": 0}}', 'i001', ['ms']),
    ('{"id": "i001", "ms": [1], "probabilities": {"billing": 1, "technical": 0, "other": 0}}', 'i001', ['ms']),
], ids=lambda x: x[:45] if isinstance(x, str) else '')
def test_bad_line(tmp_path, data, bad, id, words):
    refused(file(tmp_path, data, [ok('i000'), bad, ok('i002')]), data, 3, id, *words)

def test_missing_id(tmp_path, data):
    refused(file(tmp_path, data, [ok('i000'), ok('i002')]), data, None, 'i001', '1 of 3 items are missing')

def test_other_data(tmp_path, data):
    other = toy_data(tmp_path/'other.jsonl', 4)
    refused(file(tmp_path, data, lines(data)), other, 1, None, 'other data', data.sha256[:12], other.sha256[:12])

def test_empty_files(tmp_path, data):
    for text in ('', '\n\n', '\ufeff'): refused(put(tmp_path, text), data, None, None, 'empty', 'header')
    refused(put(tmp_path, gzip.compress(b''), 'p.jsonl.gz'), data, None, None, 'empty')
    with pytest.raises(DataError, match='empty'): read_header(put(tmp_path, ''))
    refused(tmp_path/'none.jsonl', data, None, None, 'no such file')
    refused(file(tmp_path, data, []), data, None, 'i000', '3 of 3 items are missing')


# faults in the header

@pytest.mark.parametrize('change, words', [
    ({'schema': 2}, ['schema 2', 'schema 1']), ({'schema': None}, ['schema']), ({'schema': '1'}, ['schema']),
    ({'colour': 'red'}, ['unknown', 'colour']),
    ({'options': {}}, ["'department'"]), ({'options': []}, ['options']), ({'options': {'department': ['billing']}}, ['options']),
    ({'options': {'department': ['billing', 'technical', 'sales']}}, ['sales', 'billing, technical, other']),
    ({'options': {'department': ['billing', 'billing', 'technical', 'other']}}, ['billing, technical, other']),
    ({'options': {'department': [1, 2, 3]}}, ['options']), ({'options': {'department': ['billing', 2, None]}}, ['options']),
    ({'data_sha256': 5}, ['data_sha256']), ({'data_sha256': ''}, ['other data']),
    ({'shown': []}, ['shown']), ({'shown': {'department': []}}, ['shown']), ({'shown': {'department': {'A': 1}}}, []),
    ({'system': 5}, ['system']), ({'split': 5}, ['split']), ({'labels_only': 'no'}, ['labels_only']), ({'seed': 'x'}, ['seed']), ({'condition': 3}, ['condition']),
], ids=str)
def test_bad_header(tmp_path, data, change, words):
    refused(file(tmp_path, data, lines(data), head(data).to_json() | change), data, 1, None, *words)

@pytest.mark.parametrize('key', ['system', 'split', 'data_sha256', 'options', 'schema'])
def test_header_lacks_a_key(tmp_path, data, key):
    refused(file(tmp_path, data, lines(data), {k: v for k, v in head(data).to_json().items() if k != key}), data, 1, None, key)

def test_no_header(tmp_path, data):
    path = put(tmp_path, '\n'.join(lines(data)))
    refused(path, data, 1, None, 'first line must be a header')
    assert read_predictions(path, data, head(data)).probs.tolist() == [[.2, .3, .5]]*3      # said by the caller instead

json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(OPTIONS), lambda x: st.lists(x, max_size=4) | st.dictionaries(st.sampled_from(['department', *OPTIONS, 'A']), x, max_size=3), max_leaves=6)

@fast
@given(st.dictionaries(st.sampled_from(list(Header.__dataclass_fields__)), json_values, min_size=1, max_size=2))
def test_any_header_is_read_or_refused(tmp_path_factory, change):
    folder = tmp_path_factory.mktemp('h')
    data = toy_data(folder/'toy.jsonl', 2)
    path = file(folder, data, lines(data), head(data).to_json() | change)
    try: p = read_predictions(path, data)
    except DataError as e: assert e.path is not None
    else: assert p.probs.shape == (2, 3)

@fast
@given(json_values, json_values)
def test_any_line_is_read_or_refused(tmp_path_factory, value, ms):
    folder = tmp_path_factory.mktemp('l')
    data = toy_data(folder/'toy.jsonl', 1)
    path = file(folder, data, [json.dumps({'id': 'i000', 'probabilities': value, 'ms': ms})])
    try: p = read_predictions(path, data)
    except DataError as e: assert e.path is not None and e.line == 2
    else: assert np.isfinite(p.probs).all() and abs(p.probs.sum() - 1) < .01


# compressed files

def test_compressed_and_plain_read_alike(tmp_path, data):
    plain = file(tmp_path, data, lines(data))
    packed = put(tmp_path, gzip.compress(plain.read_bytes()), 'q.jsonl.gz')
    assert (read_predictions(plain, data).probs == read_predictions(packed, data).probs).all()

def test_truncated_gzip(tmp_path, data):
    whole = gzip.compress(file(tmp_path, data, lines(data)).read_bytes())
    for cut in (5, 20, len(whole)//2, len(whole) - 1): refused(put(tmp_path, whole[:cut], 'q.jsonl.gz'), data, None, None, 'gzip')

def test_damaged_gzip(tmp_path, data):
    whole = gzip.compress(file(tmp_path, data, lines(data)).read_bytes(), mtime=0)
    for at in range(10, len(whole)):
        bad = bytearray(whole); bad[at] ^= 0x5a
        with pytest.raises(DataError) as e: read_predictions(put(tmp_path, bytes(bad), 'q.jsonl.gz'), data)
        assert str(e.value.path).endswith('q.jsonl.gz')

def test_wrong_suffix(tmp_path, data):
    refused(file(tmp_path, data, lines(data), name='q.jsonl.gz'), data, None, None, 'gzip')
    refused(put(tmp_path, gzip.compress(b'{}'), 'q.jsonl'), data, 1, None, 'UTF-8')


# accepted on purpose

def test_options_in_another_order_are_keyed(tmp_path, data):
    body = [json.dumps({'id': i, 'probabilities': {'other': .5, 'billing': .2, 'technical': .3}}) for i in data.ids]
    assert read_predictions(file(tmp_path, data, body), data).probs.tolist() == [[.2, .3, .5]]*3
    turned = head(data, options={'department': ['other', 'technical', 'billing']}).to_json()
    assert read_predictions(file(tmp_path, data, body, turned), data).probs.tolist() == [[.2, .3, .5]]*3
    short = [json.dumps({'id': i, 'probabilities': [.5, .3, .2]}) for i in data.ids]        # a list follows the header
    assert read_predictions(file(tmp_path, data, short, turned), data).probs.tolist() == [[.2, .3, .5]]*3

def test_lines_in_another_order_bom_crlf_and_blank_lines(tmp_path, data):
    h = json.dumps(head(data).to_json())
    body = [ok('i002', 1, 0, 0), ok('i000', 0, 1, 0), ok('i001', 0, 0, 1)]
    for text in ('\n'.join([h, *body]), '\ufeff' + '\r\n'.join([h, *body, '']), '\n\n' + '\n\n'.join([h, *body])):
        assert read_predictions(put(tmp_path, text), data).probs.argmax(axis=1).tolist() == [1, 2, 0]

def test_rounded_probabilities(tmp_path, data):
    assert read_predictions(file(tmp_path, data, [ok(i, .3333, .3333, .3333) for i in data.ids]), data).probs[0].tolist() == [.3333]*3

def test_odd_ids(tmp_path):
    ids = ['أ', 'a\u2028b', '👩\u200d💻', 'é', 'e\u0301', ' ', 'a\r', '\u202eb']
    data = toy_data(tmp_path/'toy.jsonl', len(ids), id=lambda i: ids[i])
    p = Predictions(head(data), data, even(data.states, DEPARTMENT))
    assert read_predictions(write_predictions(tmp_path/'p.jsonl', p), data).probs == pytest.approx(p.probs, abs=1e-6)


# writing

@fast
@given(st.builds(Header, system=st.text(min_size=1, max_size=5), split=st.text(max_size=5), data_sha256=st.text(max_size=5), options=st.dictionaries(st.text(max_size=3), st.lists(st.text(max_size=3), min_size=2, max_size=4), min_size=1, max_size=3),
                 version=st.text(max_size=5), condition=st.text(max_size=5), seed=st.none() | st.integers(0, 5), suite=st.none() | st.text(max_size=4), labels_only=st.booleans(), shown=st.dictionaries(st.text(max_size=3), st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2), max_size=2)))
def test_headers_survive(h):
    assert Header.from_json(json.loads(json.dumps(h.to_json()))) == h

def test_seed_0_is_a_seed(data):
    assert Header.from_json(head(data, seed=0).to_json()).seed == 0

@pytest.mark.parametrize('large', [False, True])
@pytest.mark.parametrize('order', [OPTIONS, OPTIONS[::-1], (OPTIONS[1], OPTIONS[2], OPTIONS[0])], ids=str)
def test_what_is_written_is_read(tmp_path, data, monkeypatch, large, order):
    if large: monkeypatch.setattr(pr, 'LARGE', 10)
    p = Predictions(head(data, options={'department': list(order)}), data, np.array([[.9, .07, .03], [.1, .2, .7], [0, 1, 0]]), ms=np.array([1.5, 2, 1000.25]))
    path = write_predictions(tmp_path/'p.jsonl', p)
    assert path.name == ('p.jsonl.gz' if large else 'p.jsonl')
    back = read_predictions(path, data)
    assert back.header == p.header and back.probs == pytest.approx(p.probs, abs=1e-4 if large else 1e-6) and (back.hit == p.hit).all()
    again = write_predictions(tmp_path/'again'/'p.jsonl', back)
    assert again.read_bytes() == path.read_bytes()

@pytest.mark.parametrize('large', [False, True])
def test_times_are_kept(tmp_path, data, monkeypatch, large):
    if large: monkeypatch.setattr(pr, 'LARGE', 10)
    path = write_predictions(tmp_path/'p.jsonl', Predictions(head(data), data, even(data.states, DEPARTMENT), ms=np.array([1.5, 2, 1000.25])))
    assert read_predictions(path, data).ms.tolist() == [1.5, 2, 1000.25]

@pytest.mark.parametrize('order', [OPTIONS, OPTIONS[::-1]], ids=str)
def test_four_digits_keep_the_decision(tmp_path, data, order):
    p = Predictions(head(data, options={'department': list(order)}), data, np.array([[.49996, .50004, 0], [.33331, .33334, .33335], [.5, .5, 0]]))
    path = write_predictions(tmp_path/'p.jsonl', p, compact=True)
    back = read_predictions(path, data)
    assert path.suffix == '.gz' and back.probs.argmax(axis=1).tolist() == [1, 2, 0] and (back.hit == p.hit).all()
    assert back.probs.tolist() == [[.5, .5001, 0], [.3333, .3333, .3334], [.5, .5, 0]]
    assert write_predictions(tmp_path/'again'/'p.jsonl', back, compact=True).read_bytes() == path.read_bytes()

@fast
@given(st.lists(st.integers(1, 12), min_size=2, max_size=80), st.lists(st.integers(-9, 9), min_size=80, max_size=80))
def test_no_rounding_changes_a_decision(w, off):
    p = np.array(w, dtype=float)/sum(w)*(1 + np.array(off[:len(w)])*1e-6)
    p /= p.sum()
    r = pr.four_digits(p)
    assert int(np.argmax(r)) == int(np.argmax(p)) and np.abs(r - p).max() < 1.51e-4 and read_probabilities(r, [str(i) for i in range(len(r))]) is not None

def test_a_new_file_replaces_its_other_form(tmp_path, data, monkeypatch):
    "A system whose new predictions cross the size limit must not be read from the old file."
    old, new = (Predictions(head(data, version=v), data, np.tile(p, (3, 1))) for v, p in (('1', [1., 0, 0]), ('2', [0, 0, 1.])))
    for first, second in ((10**6, 10), (10, 10**6)):
        path = tmp_path/str(first)/'p.jsonl'
        monkeypatch.setattr(pr, 'LARGE', first); write_predictions(path, old)
        monkeypatch.setattr(pr, 'LARGE', second); write_predictions(path, new)
        assert read_predictions(find_predictions(path), data).header.version == '2'

@fast
@given(st.lists(st.lists(st.integers(0, 10**6), min_size=3, max_size=3).filter(any), min_size=1, max_size=6))
def test_any_probabilities_survive_to_six_digits(tmp_path_factory, w):
    folder = tmp_path_factory.mktemp('p')
    data = toy_data(folder/'toy.jsonl', len(w))
    probs = np.array(w, dtype=float); probs /= probs.sum(axis=1, keepdims=True)
    back = read_predictions(write_predictions(folder/'p.jsonl', Predictions(head(data), data, probs)), data)
    assert back.probs == pytest.approx(probs, abs=5.1e-7)
    assert write_predictions(folder/'q.jsonl', back).read_bytes() == (folder/'p.jsonl').read_bytes()

def mixed(path):
    "Questions with 2, 3, 4 and 7 options in one file."
    qs = [Question.from_json(n, q) for n, q in dict(date={'type': 'noul', 'instructions': '?'}, urgency={'type': 'score', 'instructions': '?', 'criteria': list('abcd')},
                                                    letter={'type': 'choice', 'instructions': '?', 'criteria': {c: '' for c in 'gfedcba'}}).items()] + [DEPARTMENT]
    return read_items(write_jsonl(path, (Item(f'{i}', f't{i}', q, q.options[i % len(q.options)]).to_row() for i in range(12) for q in [qs[i % 4]])))

@pytest.mark.parametrize('large', [False, True])
def test_questions_with_different_k_are_padded(tmp_path, monkeypatch, large):
    if large: monkeypatch.setattr(pr, 'LARGE', 10)
    data = mixed(tmp_path/'toy.jsonl')
    probs = np.zeros((12, 7))
    for n, i in enumerate(data): probs[n, :len(i.question.options)] = even([i.state], i.question)
    path = write_predictions(tmp_path/'p.jsonl', Predictions(head(data), data, probs))
    back = read_predictions(path, data)
    assert back.probs == pytest.approx(probs, abs=1e-4) and back.probs.shape == (12, 7)
    assert all((back.probs[n, len(i.question.options):] == 0).all() for n, i in enumerate(data))
    if not large: assert [len(l['probabilities']) for l in lines_of(path)[1:]] == [2, 4, 7, 3]*3
    assert back.select(np.arange(12) % 4 == 0).probs.shape == (3, 7)

def test_shown_names(tmp_path, data):
    "A stress file gives its probabilities under the names that the system saw."
    shown = {'department': {'A': 'other', 'B': 'billing', 'C': 'technical'}}
    h = head(data, options={'department': ['A', 'B', 'C']}, condition='letters', shown=shown)
    body = [json.dumps({'id': i, 'probabilities': {'A': .5, 'B': .2, 'C': .3}}) for i in data.ids]
    p = read_predictions(file(tmp_path, data, body, h.to_json()), data)
    assert p.probs.tolist() == [[.2, .3, .5]]*3
    assert write_predictions(tmp_path/'q.jsonl', p).read_text().count('"A": 0.5') == 3
    refused(file(tmp_path, data, lines(data), h.to_json()), data, 2, 'i000', "'billing'", 'B, C, A')

def test_shown_names_survive_compression(tmp_path, data, monkeypatch):
    monkeypatch.setattr(pr, 'LARGE', 10)
    p = Predictions(head(data, options={'department': ['A', 'B', 'C']}, condition='letters', shown={'department': {'A': 'other', 'B': 'billing', 'C': 'technical'}}), data, np.tile([.2, .3, .5], (3, 1)))
    assert read_predictions(write_predictions(tmp_path/'q.jsonl', p), data).probs.tolist() == [[.2, .3, .5]]*3

@pytest.mark.parametrize('p, k', [([1.00115, 0, 0], 3), ([.5, .502], 2)])
def test_tolerance(p, k):
    with pytest.raises(ValueError): read_probabilities(dict(zip('abc', p)), 'abc'[:k])
    assert tolerance(3) == pytest.approx(.00115)

def test_paths(tmp_path):
    f = lambda **kw: predictions_path('s', 'ml_test', root=tmp_path, **kw).relative_to(tmp_path).as_posix()
    assert f() == 'systems/s/ml_test.jsonl' and f(seed=0) == 'systems/s/seed-0/ml_test.jsonl' and f(condition='letters') == 'systems/s/ml_test.letters.jsonl' and f(suite='x', seed=1) == 'systems/s/seed-1/x/ml_test.jsonl'
    assert frozen('s', 'ml_test', tmp_path) is None
