"The released files are what the raw files say they are, and anything else is seen."
import json
import shutil
from collections import Counter
import pytest
from hypothesis import example, given, strategies as st
from conftest import fast, toy_items, tree
from polyroute import items, release
from polyroute.items import DEPARTMENT, SPLITS, TRAINING, TWELVE, VARIETIES, WITHHELD, DataError, Item, data_dir, load, read_rows, reference, sha256, write_jsonl
from polyroute.release import (blind_filter, build, build_items, department_item, drop_duplicates, duplicate_key, nested_share, raw_rows, soft_labels, typed_items, verify, write_sums)

COUNTS = dict(ml_test=360, mix_test=180, en_test=90, ml_hard=255, ml_train=1080, train=2892, train_ml=3972, train_ml_ho=3612, train_ml_25=3162, train_ml_50=3432, boundary=96)

@pytest.fixture(scope='module')
def built(tmp_path_factory):
    "The release, built from the raw files into an empty folder, and its counts."
    out = tmp_path_factory.mktemp('release')
    return out, build(out=out)

def squeeze(text): return ' '.join(text.casefold().split())


# the build

def test_the_build_equals_the_released_files(built):
    out, _ = built
    for name in COUNTS: assert (out/f'{name}.jsonl').read_bytes() == (data_dir()/f'{name}.jsonl').read_bytes(), name
    assert {p.stem for p in out.glob('*.jsonl')} == set(COUNTS) == {*SPLITS, *TRAINING}

def test_two_builds_are_identical(built, tmp_path):
    build(out=tmp_path)
    assert tree(tmp_path) == tree(built[0])

@pytest.mark.parametrize('name', COUNTS)
def test_number_of_items(name):
    data = load(name)
    assert len(data) == COUNTS[name] and len(set(data.ids)) == COUNTS[name]

def kept(run, source):
    "What the raw files say should be there: candidates on which the blind reader agrees."
    blind = {r['id']: r['label'] for r in raw_rows('blind_labels.jsonl')}
    return [c for c in raw_rows(f'{source}_candidates.jsonl') if c.get('run', run) == run and blind[c['id']] == c['department']]

@pytest.mark.parametrize('name, run, source', [('ml_test', 'test', 'native'), ('ml_train', 'train', 'native'), ('mix_test', 'test', 'mix'), ('en_test', 'test', 'english'), ('ml_hard', '', 'hard')])
def test_items_per_language_and_department(name, run, source):
    want, data = kept(run, source), load(name)
    where = lambda c: c.get('variety') or c.get('language') or 'en'           # the hard split has both, in one field
    key = [v or l for v, l in zip(data.field('variety'), data.field('language'))]
    assert set(data.field('language')) <= {*TWELVE, 'en', ''} and set(data.field('variety')) <= {*VARIETIES, ''}
    assert Counter(zip(key, data.field('gold'))) == Counter((where(c), c['department']) for c in want)
    raw = {c['id']: c for c in want}
    assert all(i.state == raw[i.id]['text'] and i.gold == raw[i.id]['department'] for i in data)

def test_the_data_card():
    data = load('ml_test')
    assert {l: len(ix) for l, ix in data.groups('language').items()} == dict.fromkeys(TWELVE, 30)
    assert Counter(data.field('gold')) == dict(billing=120, technical=120, other=120)
    assert {v: len(ix) for v, ix in load('mix_test').groups('variety').items()} == dict.fromkeys(sorted(VARIETIES), 60)
    assert {l: len(ix) for l, ix in load('ml_train').groups('language').items()} == dict.fromkeys(TWELVE, 90)
    assert Counter(load('train').field('source')) == dict(generic=432, english=360, typed=2100)

def test_no_text_stands_in_two_files():
    where = {}
    for name in (*SPLITS, 'ml_train', 'train'):
        for text in {squeeze(t) for t in load(name).department().states}: where.setdefault(text, []).append(name)
    assert [w for w in where.values() if len(w) > 1] == []
    for name in ('ml_test', 'mix_test', 'en_test', 'ml_hard', 'boundary', 'ml_train'): assert len({squeeze(t) for t in load(name).states}) == len(load(name))

def test_training_sets_nest():
    ids = {n: load(n).ids.tolist() for n in TRAINING}
    native = set(ids['ml_train'])
    assert ids['train_ml'] == ids['train'] + ids['ml_train']
    assert set(ids['train_ml_25']) < set(ids['train_ml_50']) < set(ids['train_ml'])
    assert [len(native & set(ids[n])) for n in ('train_ml_25', 'train_ml_50', 'train_ml_ho')] == [270, 540, 720]
    held = [i for i in load('train_ml_ho') if i.meta['source'] == 'native']
    assert {i.meta['language'] for i in held} == set(TWELVE) - set(WITHHELD)
    for name in TRAINING: assert name == 'ml_train' or ids[name][:2892] == ids['train']

def test_evaluation_items_are_in_no_training_set():
    train = {t for n in TRAINING for t in load(n).ids}
    for split in SPLITS: assert not train & set(load(split).ids)

def test_typed_questions_are_of_three_types():
    assert Counter(i.question.type for i in load('train')).keys() == {'choice', 'score', 'noul'}
    assert all(i.gold in i.question.options for i in load('train'))

def test_soft_split():
    data = load('boundary')
    assert data.soft.shape == (96, 3) and abs(data.soft.sum(axis=1) - 1).max() < 1e-5 and (data.gold == -1).all()
    one = [r for r in raw_rows('boundary_labels.jsonl') if r['id'] == data.ids[0]]
    shares = [[r[o]/sum(r[p] for p in DEPARTMENT.options) for o in DEPARTMENT.options] for r in one]
    assert data.soft[0] == pytest.approx([sum(c)/len(shares) for c in zip(*shares)], abs=1e-6)

def test_sums_are_those_of_sha256sum():
    listed = dict(l.split('  ')[::-1] for l in (data_dir()/'SHA256SUMS').read_text().split('\n') if l)
    for name in COUNTS: assert listed[f'{name}.jsonl'] == sha256(data_dir()/f'{name}.jsonl')


# the steps

C = lambda id, dep='billing', text=None, **kw: dict(id=id, department=dep, text=f'text {id}' if text is None else text, **kw)

def test_the_blind_filter_drops_what_the_reader_disputes():
    kept, dropped = blind_filter([C('a'), C('b'), C('c', 'other')], dict(a='billing', b='technical', c='other'))
    assert [c['id'] for c in kept] == ['a', 'c'] and [c['id'] for c in dropped] == ['b']
    with pytest.raises(DataError, match='no blind label') as e: blind_filter([C('a'), C('z')], dict(a='billing'))
    assert e.value.id == 'z'

@pytest.fixture
def raw(tmp_path):
    "A copy of the raw folder that a test may change."
    return shutil.copytree(data_dir()/'raw', tmp_path/'raw')

def edit(path, change):
    rows = [change(r) for _, r in read_rows(path)]
    write_jsonl(path, [r for r in rows if r])

def test_a_disputed_candidate_is_dropped_from_the_build(raw):
    id = raw_rows('native_candidates.jsonl', raw)[0]['id']
    edit(raw/'blind_labels.jsonl', lambda r: {**r, 'label': 'other'} if r['id'] == id else r)
    files, counts = build_items(raw)
    assert id not in {i.id for i in files['ml_test']} and len(files['ml_test']) == 359
    assert next(c for c in counts if c['file'] == 'ml_test') == dict(file='ml_test', generated=360, blind_disagrees=1, duplicates=0, kept=359)

def test_duplicates_across_files_are_dropped_from_training(raw):
    text = raw_rows('hard_candidates.jsonl', raw)[0]['text']
    first = next(r['id'] for r in raw_rows('native_candidates.jsonl', raw) if r['run'] == 'train')
    edit(raw/'native_candidates.jsonl', lambda r: {**r, 'text': f'  {text.upper()}\n'} if r['id'] == first else r)
    files, counts = build_items(raw)
    assert len(files['ml_hard']) == 255 and first not in {i.id for n in ('ml_train', 'train_ml', 'train_ml_ho', 'train_ml_25', 'train_ml_50') for i in files[n]}
    assert next(c for c in counts if c['file'] == 'ml_train')['duplicates'] == 1

def test_a_candidate_without_a_blind_label_stops_the_build(raw):
    id = raw_rows('mix_candidates.jsonl', raw)[3]['id']
    edit(raw/'blind_labels.jsonl', lambda r: None if r['id'] == id else r)
    with pytest.raises(DataError, match='no blind label') as e: build_items(raw)
    assert e.value.id == id

def test_an_unknown_language_stops_the_build(raw):
    id = raw_rows('native_candidates.jsonl', raw)[0]['id']
    edit(raw/'native_candidates.jsonl', lambda r: {**r, 'language': 'xx'} if r['id'] == id else r)
    with pytest.raises(DataError, match="'xx'") as e: build_items(raw)
    assert e.value.id == id

def test_a_broken_raw_file_is_named(raw):
    (raw/'typed'/'workplace.jsonl').write_text('{"state": \n')
    with pytest.raises(DataError, match='workplace.jsonl') as e: build_items(raw)
    assert e.value.line == 1

@pytest.mark.parametrize('key', ['id', 'text', 'department'])
def test_a_candidate_that_lacks_a_key_is_named(raw, key):
    edit(raw/'mix_candidates.jsonl', lambda r, n=iter(range(9**9)): {k: v for k, v in r.items() if k != key} if next(n) == 2 else r)
    with pytest.raises(DataError, match=key): build_items(raw)

def test_nothing_is_written_if_the_build_fails(raw, tmp_path):
    (raw/'boundary_labels.jsonl').write_text('oops\n')
    with pytest.raises(DataError): build(raw, tmp_path/'out')
    assert not (tmp_path/'out').exists()

@fast
@given(st.lists(st.text('aAbİßσς \t\n\u3000\u00a0é\u0301한', max_size=5), max_size=8), st.sets(st.text('ab ', max_size=3), max_size=3))
def test_duplicates_equal_brute_force(texts, seen):
    seen = {duplicate_key(t) for t in seen}
    want, known = [], set(seen)
    for i, t in enumerate(texts):
        key = ' '.join(t.lower().split())
        if key not in known: want.append(i)
        known.add(key)
    kept, dropped = drop_duplicates([C(i, text=t) for i, t in enumerate(texts)], seen)
    assert [c['id'] for c in kept] == want and len(kept) + len(dropped) == len(texts)
    assert drop_duplicates(kept, seen)[0] == []                        # what was kept is known from now on

def test_meta_of_a_candidate():
    assert department_item(C('a', language='ja'), 'native').meta == dict(language='ja', script='Han+kana', source='native')
    assert department_item(C('a', variety='arabizi'), 'mix').meta == dict(variety='arabizi', script='Latin', source='mix')
    assert department_item(C('a'), 'english').meta['language'] == 'en' and department_item(C('a'), 'generic').meta == dict(source='generic')

def test_typed_answers_must_be_options():
    q = {'urgent': {'type': 'noul', 'instructions': '?'}}
    assert [(i.id, i.gold) for i in typed_items('t', q, [(7, {'state': 's', 'answers': {'urgent': True}})])] == [('t-007-urgent', 'true')]
    with pytest.raises(ValueError, match='false, true'): typed_items('t', q, [(7, {'state': 's', 'answers': {'urgent': 'yes'}})])

def test_soft_labels_are_means_of_shares():
    assert soft_labels([dict(id='a', billing=1, technical=1, other=2), dict(id='a', billing=100, technical=0, other=0)]) == {'a': dict(billing=.625, technical=.125, other=.25)}

def test_a_reading_without_weight_is_refused():
    with pytest.raises(DataError) as e: soft_labels([dict(id='a', billing=0, technical=0, other=0)])
    assert e.value.id == 'a'

@fast
@given(st.integers(0, 120), st.integers(0, 100), st.integers(0, 100), st.integers(0, 3))
@example(100, 29, 57, 0)      # .29 · 100 is 28.999… in floats
def test_shares_nest(n, a, b, seed):
    all_items = [Item(f'x{i}', '', DEPARTMENT, 'other') for i in range(n)]
    small, large = (nested_share(all_items, min(a, b)/100, seed), nested_share(all_items, max(a, b)/100, seed))
    assert len(small) == min(a, b)*n//100 and len(large) == max(a, b)*n//100         # floor(share · n), in whole numbers
    assert {i.id for i in small} <= {i.id for i in large}
    order = [int(i.id[1:]) for i in large]
    assert order == sorted(order)

def test_shares_do_not_depend_on_order_and_change_with_the_seed():
    some = toy_items(40)
    assert {i.id for i in nested_share(some, .5)} == {i.id for i in nested_share(some[::-1], .5)} != {i.id for i in nested_share(some, .5, seed=1)}


# verify

@pytest.fixture
def folder(tmp_path, monkeypatch):
    "A small data folder with its sums, and code that ships these sums."
    for n in ('ml_test', 'mix_test'): write_jsonl(tmp_path/'d'/f'{n}.jsonl', (i.to_row() for i in toy_items(5)))
    (tmp_path/'shipped').mkdir()
    (tmp_path/'shipped/SHA256SUMS').write_bytes(write_sums(tmp_path/'d').read_bytes())
    monkeypatch.setattr(release, 'shipped_data', lambda: tmp_path/'shipped')
    return tmp_path/'d'

def test_a_folder_cannot_vouch_for_itself(folder):
    f = folder/'ml_test.jsonl'
    f.write_text(f.read_text().replace('"billing"}, "meta"', '"other"}, "meta"'))
    write_sums(folder)
    assert statuses(folder)['ml_test.jsonl'] == 'changed' and 'not as released' in verify(folder)[0]

def test_other_data_with_sums_of_its_own_is_not_ours(tmp_path):
    write_jsonl(tmp_path/'hello.jsonl', [{'hello': 1}])
    write_sums(tmp_path)
    assert verify(tmp_path)[0] == 'unknown data' and statuses(tmp_path) == {'hello.jsonl': 'ok'}

@pytest.mark.parametrize('name', ['../secret', '/etc/hostname'])
def test_sums_stay_in_their_folder(folder, name):
    (folder/'SHA256SUMS').write_text(f'{"0"*64}  {name}\n')
    with pytest.raises(DataError, match='outside the folder'): verify(folder)

def test_a_foreign_file_among_the_originals(tmp_path, monkeypatch):
    for n in ('ml_test', 'train'): write_jsonl(tmp_path/f'{n}.jsonl', (i.to_row() for i in toy_items(7)))
    monkeypatch.setattr(release, 'original_prefixes', lambda: {'train': sha256(tmp_path/'train.jsonl')[:20]})
    assert statuses(tmp_path) == {'train.jsonl': 'original', 'ml_test.jsonl': 'changed'} and 'original' not in verify(tmp_path)[0]

def statuses(folder): return {r['file']: r['status'] for r in verify(folder)[1]}

def test_the_release_verifies():
    name, rows = verify(data_dir())
    assert 'Claude' in name and {r['status'] for r in rows if not r['file'].startswith(('raw/', 'reference/'))} == {'ok'}
    assert all(r['sha256'] == sha256(data_dir()/r['file']) for r in rows)

def test_verify_sees_every_change(folder):
    assert statuses(folder) == {'ml_test.jsonl': 'ok', 'mix_test.jsonl': 'ok'}
    data = (folder/'ml_test.jsonl').read_bytes()
    (folder/'ml_test.jsonl').write_bytes(data.replace(b'\n', b'\r\n'))
    assert statuses(folder)['ml_test.jsonl'] == 'changed' and 'not as released' in verify(folder)[0]
    (folder/'ml_test.jsonl').unlink()
    assert statuses(folder)['ml_test.jsonl'] == 'missing' and 'not as released' in verify(folder)[0]

def test_an_own_file_does_not_make_the_release_unknown(folder):
    before = verify(folder)[0]
    assert 'Claude' in before
    write_jsonl(folder/'mine.jsonl', (i.to_row() for i in toy_items(5)))
    assert statuses(folder)['mine.jsonl'] == 'unlisted' and 'Claude' in verify(folder)[0]

def test_verify_says_what_is_wrong_with_the_sums(folder):
    (folder/'SHA256SUMS').write_text('# comment\n\nabc  ml_test.jsonl\n')
    with pytest.raises(DataError, match='64 hexadecimal') as e: verify(folder)
    assert e.value.line == 3
    with pytest.raises(DataError, match='no such folder'): verify(folder/'none')

def test_unknown_data(tmp_path):
    write_jsonl(tmp_path/'x.jsonl', [{'a': 1}])
    assert verify(tmp_path)[0] == 'unknown data' and statuses(tmp_path) == {'x.jsonl': 'unlisted'}

def test_the_original_release_is_recognised(tmp_path, monkeypatch):
    for n in ('ml_test', 'mix_test', 'train'): write_jsonl(tmp_path/f'{n}.jsonl', ({k: v for k, v in i.to_row().items() if k not in ('id', 'meta')} for i in toy_items(7)))
    prefixes = {n: sha256(tmp_path/f'{n}.jsonl')[:20] for n in ('ml_test', 'mix_test', 'train')}
    for module in (items, release): monkeypatch.setattr(module, 'original_prefixes', lambda: prefixes)
    name, rows = verify(tmp_path)
    assert 'original' in name and {r['status'] for r in rows} == {'original'}
    write_jsonl(tmp_path/'ml_test.meta.jsonl', [{'row': 0, 'language': 'de'}])
    assert 'original' in verify(tmp_path)[0] and statuses(tmp_path)['ml_test.meta.jsonl'] == 'unlisted'
    monkeypatch.setenv('POLYROUTE_DATA', str(tmp_path))
    assert len(load('train')) == 7 and load('ml_test').field('language').tolist() == ['de'] + ['']*6

def test_the_published_prefixes():
    assert set(items.original_prefixes()) == {'ml_test', 'mix_test', 'ml_train', 'train', 'train_ml', 'train_ml_ho'}
    assert all(len(p) == 20 and set(p) <= set('0123456789abcdef') for p in items.original_prefixes().values())
    assert [n for n, _ in reference()['appendix_c_sha256_prefix'].values() if n] == [322, 156, 967, 2818, 3785, 3464]
