"The leakage audit against Python's sets, over every kind of pool, and on two worker processes of which one is killed."
import json, os, signal
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from polyroute import leakage
from polyroute.items import DataError, MissingPackage, load
from polyroute.leakage import Index, Nearest, Part, audit, chunked, jaccard, merge, nearest, ngrams, plan, read_part, report, show_pairs
from polyroute.release import duplicate_key as normalise

KEYS = ('shared', 'union', 'row', 'duplicate')

def oracle(test, pool, n=5, same=False):
    "Largest similarity and its lowest row, by Python sets in a double loop."
    out = []
    for i, t in enumerate(test):
        s = [(len(a & b) / len(a | b) if a | b else 0.) if not (same and i == r) else -1. for r, p in enumerate(pool) for a, b in [(ngrams(t, n), ngrams(p, n))]]
        top = max(s, default=0.)
        out.append((max(top, 0.), s.index(top) if top > 0 else -1))
    return out

def twins(test, pool, same=False):
    return [next((r for r, p in enumerate(pool) if normalise(p) == normalise(t) and not (same and r == i)), -1) for i, t in enumerate(test)]

# few letters, so that texts share grams: ASCII, cased and dotted letters, combining marks, Arabic and Hebrew, Tamil, Hangul, emoji with joiners, astral letters, a lone surrogate, bidi controls, line separators
LETTERS = 'aAbİßσς \t\u3000é\u0301\u0327مرحبا\u064eשלוםத\u0bbf한글👩\u200d💻😀𝒜𐍈\ud83d\u202e\u2028\u0000'
texts = st.lists(st.text(st.sampled_from(LETTERS), max_size=24) | st.text(max_size=12) | st.sampled_from(['aaaaaaa', 'aaaaaa', 'abababab', '😀😀😀😀😀', 'مرحبا مرحبا']), max_size=8)

@pytest.mark.parametrize('method', ['numba', 'numpy'])
@settings(max_examples=150, deadline=None)
@given(texts, texts, st.integers(1, 7), st.integers(1, 9))
def test_equals_python_sets(method, test, pool, n, size):
    got = nearest(Index(test, n, method=method), chunked(enumerate(pool), rows=size))
    assert list(zip(got.similarity.tolist(), got.row.tolist())) == oracle(test, pool, n)
    assert got.duplicate.tolist() == twins(test, pool)
    assert got.text == [pool[r] if r >= 0 else '' for r in got.row]
    assert (got.rows, got.short) == (len(pool), sum(len(p) < n for p in pool))

@pytest.mark.parametrize('method', ['numba', 'numpy'])
@settings(max_examples=75, deadline=None)
@given(texts)
def test_rest_of_itself_leaves_out_only_the_text(method, test):
    if not test: return
    got = audit(test, method=method).near
    assert list(zip(got.similarity.tolist(), got.row.tolist())) == oracle(test, test, same=True)
    assert got.duplicate.tolist() == twins(test, test, same=True)

@settings(max_examples=75, deadline=None)
@given(texts, texts)
def test_normalised_is_raw_on_normalised_texts(test, pool):
    a, b = (nearest(Index(t, normalised=on), chunked(enumerate(p))) for t, p, on in ((test, pool, True), ([*map(normalise, test)], [*map(normalise, pool)], False)))
    assert all((getattr(a, k) == getattr(b, k)).all() for k in KEYS)

@settings(max_examples=75, deadline=None)
@given(texts, texts, st.lists(st.integers(0, 8), max_size=3), st.randoms())
def test_merge_in_any_order(test, pool, cuts, random):
    cuts = sorted({0, len(pool), *(c for c in cuts if c < len(pool))})
    parts = [nearest(Index(test), chunked(enumerate(pool[a:b], a))) for a, b in zip(cuts, cuts[1:])]
    random.shuffle(parts)
    got = Nearest.empty(len(test))
    for p in parts: got = merge(got, p)
    same(got, nearest(Index(test), chunked(enumerate(pool))))

def same(a, b):
    for k in KEYS: assert getattr(a, k).tolist() == getattr(b, k).tolist(), k
    assert (a.text, a.rows, a.short) == (b.text, b.rows, b.short)
    assert a.similarity.tobytes() == b.similarity.tobytes()

def test_definitions():
    assert jaccard('abcde', 'abcde') == 1 and jaccard('abcd', 'abcd') == 0
    assert ngrams('e\u0301tude') != ngrams('étude')
    assert len(ngrams('😀😁😂🤣😃😄')) == 2           # code points, not UTF-16 units
    assert jaccard('aaaaaaaaaa', 'aaaaa') == 1          # sets, not multisets
    assert audit(['the same'], ['the same', 'the same']).near.row.tolist() == [0]  # a tie: the lowest row

def test_real_splits_equal_the_frozen_ones():
    pool = load('train_ml').states
    for a in leakage.frozen_audits():
        if a.pool == 'rest of itself': near = audit(load(a.test), method='numpy').near
        else: near = audit(load(a.test), pool).near
        same(a.near, near)

def test_a_sample_of_the_real_ones_equals_python_sets():
    pool, test = load('train_ml').states[::8], load('ml_test').states[::12]
    got = audit(test, pool).near
    assert list(zip(got.similarity.tolist(), got.row.tolist())) == oracle(test, pool)

# ---- files

def parquet(path, table, **kw):
    import pyarrow as pa, pyarrow.parquet as pq
    pq.write_table(pa.table(table), path, **kw)
    return path

POOL = ['refund please', '', 'where is my parcel?', 'أين طردي؟ أين طردي؟', 'two\u2028lines', 'ends with \\r', 'a\u0000b\u0000c', '😀😀😀😀😀😀']

def test_kinds_of_pool_agree(tmp_path):
    (tmp_path/'a.jsonl').write_bytes('\ufeff'.encode() + b'\n'.join(json.dumps({'id': i, 'state': t}).encode() for i, t in enumerate(POOL)) + b'\r\n')
    (tmp_path/'a.txt').write_bytes('\r\n'.join(POOL).encode())
    parquet(tmp_path/'a.parquet', {'n': list(range(8)), 'text': [t or None for t in POOL]}, row_group_size=3)
    got = {k: audit(POOL[::-1], tmp_path/f'a.{k}', part_size=8).near for k in ('jsonl', 'txt', 'parquet')}
    same(got['txt'], got['parquet'])
    assert got['jsonl'].rows == 8 and got['txt'].rows == 7  # a blank line is no text, an empty string is a (short) one
    for k in ('shared', 'union', 'row', 'text'): assert np.array_equal(getattr(got['jsonl'], k), getattr(got['txt'], k))

def test_a_folder_is_one_pool(tmp_path):
    (tmp_path/'0.txt').write_text('first text\nsecond text')
    (tmp_path/'1.jsonl').write_text('{"text": "third text"}\n')
    parquet(tmp_path/'2.parquet', {'state': ['fourth text', 'fifth text']})
    (tmp_path/'notes.md').write_text('not a pool')
    a = audit(['fifth text', 'third text', 'first text'], tmp_path)
    assert a.near.row.tolist() == [4, 2, 0] and a.near.rows == 5
    assert [a.where(r) for r in a.near.row] == ['2.parquet row 2', '1.jsonl line 1', '0.txt line 1']

@pytest.mark.parametrize('size', [1, 7, 64, 2**24])
def test_cuts_keep_every_line_and_its_number(tmp_path, size):
    f = tmp_path/'p.jsonl'
    f.write_bytes(b'\n\n' + b''.join(json.dumps({'text': f'text {i} ' * (i % 5)}, ensure_ascii=False).encode() + b'\n' * (1 + i % 3) for i in range(50)))
    parts = plan(f, size)
    assert [t for p in parts for t in read_part(p)] == [t for p in plan(f) for t in read_part(p)]
    assert sum(1 for p in parts for _ in read_part(p)) == 50

def refuses(*words, error=DataError):
    return pytest.raises(error, match='(?s)' + '.*'.join(words))

def test_bad_pools_are_answered(tmp_path):
    w = lambda name, data: ((tmp_path/name).write_bytes(data), tmp_path/name)[1]
    t = ['a test text']
    with refuses('nothing.txt', 'no such file'): audit(t, tmp_path/'nothing.txt')
    with refuses('pool.csv', r'\.csv is not a kind of pool', r'\.jsonl, \.txt, \.parquet'): audit(t, w('pool.csv', b'x'))
    with refuses('empty.txt', 'no texts'): audit(t, w('empty.txt', b''))
    with refuses('blank.jsonl', 'no texts'): audit(t, w('blank.jsonl', b'\n \n'))
    with refuses('empty.parquet', 'no texts'): audit(t, empty_parquet(tmp_path/'empty.parquet'))
    with refuses('no texts'): audit(t, [])
    with refuses('test set has no texts'): audit([], ['a pool text'])
    with refuses('text 2 is of type int'): audit(t, ['a', 3])
    with refuses('latin.txt, line 2', 'byte 2', 'UTF-8'): audit(t, w('latin.txt', b'ok\nn\xe4\n'))
    with refuses('latin.jsonl, line 3', 'UTF-8'): audit(t, w('latin.jsonl', b'{"text": "a"}\n{"text": "b"}\n{"text": "\xff"}\n'), part_size=1)
    with refuses('half.jsonl, line 2', 'not a JSON object'): audit(t, w('half.jsonl', b'{"text": "a"}\n{"text": '))
    with refuses('list.jsonl, line 1', 'not list'): audit(t, w('list.jsonl', b'["a"]'))
    with refuses('deep.jsonl, line 1', 'not a JSON object'): audit(t, w('deep.jsonl', b'[' * 10**5))
    with refuses('fields.jsonl, line 1', "'state' or 'text'", "'body'"): audit(t, w('fields.jsonl', b'{"body": "a"}'))
    with refuses('fields.jsonl, line 1', "no field 'msg'", "'body'"): audit(t, tmp_path/'fields.jsonl', field='msg')
    with refuses('state.jsonl, line 1', "'state' holds no text"): audit(t, w('state.jsonl', b'{"state": {"a": 1}}'))
    with refuses('p.txt', "no field 'text'"): audit(t, w('p.txt', b'a\n'), field='text')
    with refuses('not.parquet', 'no Parquet file'): audit(t, w('not.parquet', b'PAR'))
    p = parquet(tmp_path/'c.parquet', {'id': [1], 'message': ['a']})
    with refuses('c.parquet', "no column 'state' or 'text'", r'id \(int64\), message'): audit(t, p)
    with refuses('c.parquet', "'id' holds int64, not text"): audit(t, p, field='id')
    assert audit(t, p, field='message').near.rows == 1
    with refuses('folder', error=DataError): audit(t, (tmp_path/'folder').mkdir() or tmp_path/'folder')

def empty_parquet(path):
    import pyarrow as pa
    return parquet(path, {'text': pa.array([], pa.string())})

def test_one_gigantic_line(tmp_path, monkeypatch):
    monkeypatch.setattr(leakage, 'MAX_LINE', 1000)
    for name in ('big.txt', 'big.jsonl'):
        (tmp_path/name).write_bytes(b'{"text": "a"}\n{"text": "' + b'x' * 5000 + b'"}\n{"text": "b"}\n')
        for size in (1, 100, 2000, 2**24):
            with refuses(f'{name}, line 2', 'more than 1,000 bytes'): audit(['abcdef'], tmp_path/name, part_size=size)
    (tmp_path/'fits.txt').write_bytes(b'x' * 999 + b'\n' + b'y' * 999)
    assert audit(['yyyyyy'], tmp_path/'fits.txt').near.row.tolist() == [1]

def test_parquet_of_every_kind_of_text(tmp_path, monkeypatch):
    import pyarrow as pa
    want = ['first text', None, 'third text']
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        f = parquet(tmp_path/'k.parquet', {'text': pa.array(want, pa.string()).cast(kind)}, row_group_size=2)
        assert [t for p in plan(f) for t in read_part(p)] == [(0, 'first text'), (2, 'third text')]
    f = parquet(tmp_path/'bad.parquet', {'text': pa.array([b'ok', b'\xff']).cast(pa.string(), safe=False)})
    with refuses('bad.parquet, line 1', "column 'text' holds a text that is not UTF-8"): audit(['a text'], f)
    monkeypatch.setattr(leakage, 'MAX_LINE', 9)
    with refuses('k.parquet, line 1', 'more than 9 bytes'): audit(['a text'], tmp_path/'k.parquet')
    f = parquet(tmp_path/'torn.parquet', {'text': ['a text'] * 9000})
    f.write_bytes(b'PAR1' + b'\xff' * 40 + f.read_bytes()[44:])
    with refuses('torn.parquet, line 1', 'damaged'): audit(['a text'], f)

def test_short_texts_are_reported():
    a = audit(['hi', 'OK', 'long enough'], ['ok', 'hey', 'long enough!'])
    assert a.near.similarity.tolist()[:2] == [0, 0] and a.near.duplicate.tolist() == [-1, 0, -1]
    assert a.notes() == ['2 of 3 test texts have fewer than 5 characters: no 5-gram, similarity 0 by definition; only the check for duplicates sees them',
                         '2 of 3 pool texts have fewer than 5 characters: no 5-gram, similarity 0 by definition; only the check for duplicates sees them']
    assert all(n in report(a) for n in a.notes())

def test_pool_as_a_generator_is_read_once_in_chunks():
    made = []
    def pool():
        for i in range(300_000):
            made.append(i)
            yield f'pool text number {i}'
    a = audit(['pool text number 299999'], pool(), part_size=2**18)
    assert a.near.row.tolist() == [299_999] and a.near.duplicate.tolist() == [299_999] and len(made) == 300_000

def test_without_numba(monkeypatch):
    import sys
    monkeypatch.setitem(sys.modules, 'numba', None)
    assert Index(['a text']).method == 'numpy'
    with pytest.raises(ImportError, match=r"polyroute\[leakage\]"): Index(['a text'], method='numba')
    with pytest.raises(ValueError, match="'auto', 'numba', 'numpy'"): Index(['a text'], method='fast')

def test_without_the_engine_or_pyarrow(monkeypatch, tmp_path):
    import sys
    monkeypatch.setitem(sys.modules, 'distributed', None)
    with pytest.raises(ImportError, match=r"polyroute\[engines\]"): audit(['a text'], ['a pool text'], engine='dask')
    monkeypatch.setitem(sys.modules, 'pyarrow.parquet', None)
    (tmp_path/'x.parquet').write_bytes(b'')
    with pytest.raises(MissingPackage, match=r'polyroute\[leakage\]'): audit(['a text'], tmp_path/'x.parquet')

def test_html_of_texts_is_safe():
    page = show_pairs([(1.0, '<script>alert(1)</script>', 'مرحبا & "שלום"')], ['<s>', 'a', 'b'])
    assert '<script>' not in page and page.count('dir="auto"') == 2 and '&lt;s&gt;' in page

# ---- two worker processes

@pytest.fixture(scope='module')
def cluster():
    from distributed import Client, LocalCluster
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address='127.0.0.1:0') as c, Client(c) as client: yield client

@pytest.fixture(scope='module')
def shards(tmp_path_factory):
    "A pool of 8,000 rows in three files of three kinds, in which every tie and duplicate stands in several parts."
    d, pool = tmp_path_factory.mktemp('pool'), load('train_ml').states * 2
    (d/'a.jsonl').write_text(''.join(json.dumps({'state': t}) + '\n' for t in pool[:3000]))
    (d/'b.txt').write_text(''.join(t.replace('\n', ' ') + '\n' for t in pool[3000:6000]), encoding='utf-8')
    parquet(d/'c.parquet', {'text': pool[6000:]}, row_group_size=500)
    return d

def test_engine_gives_the_same_bits(cluster, shards):
    test = load('ml_test').states + load('train_ml').states[::40]
    here = audit(test, shards)
    pids = set(cluster.run(os.getpid).values())
    assert len(pids) == 2 and os.getpid() not in pids
    same(audit(test, shards, engine=cluster, part_size=2**15).near, here.near)
    same(audit(test, shards, engine=cluster.scheduler.address, part_size=2**17).near, here.near)
    pool = load('train_ml').states * 2
    same(audit(test, pool, engine=cluster, part_size=2**15).near, audit(test, pool).near)
    with refuses('[abc]', "no (field|column) 'nonsense'"): audit(test, shards, engine=cluster, field='nonsense')

def test_killed_worker_changes_nothing(cluster, shards):
    test, killed, lost, workers = load('ml_test').states, [], [], cluster.run(os.getpid)
    def kill(done, parts):
        if done == 2:
            address, pid = next(iter(workers.items()))
            lost.extend(cluster.processing()[address])  # parts that it has taken
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
    got = audit(test, shards, engine=cluster, part_size=2**14, progress=kill)
    cluster.wait_for_workers(2, timeout=60)
    assert killed and lost and killed[0] not in cluster.run(os.getpid).values()
    same(got.near, audit(test, shards).near)

def test_engine_by_name():
    same(audit(['refund please now'], POOL, engine='dask').near, audit(['refund please now'], POOL).near)

# ---- meaning

def test_standardise_and_threshold():
    r = np.random.default_rng(0)
    cosine, unrelated = r.random((6, 9)), np.ones((6, 9), bool)
    test, pool = np.array(list('aabbab')), np.array(list('xxxyyyyxx'))
    z = leakage.standardise(cosine, test, pool, unrelated)
    for a in 'ab':
        for x in 'xy':
            block = z[np.ix_(test == a, pool == x)]
            assert abs(block.mean()) < 1e-12 and abs(block.std() - 1) < 1e-12
    unrelated[:] = False
    assert np.isnan(leakage.standardise(cosine, test, pool, unrelated)).all()
    assert leakage.threshold(np.array([-np.inf, *range(100)]), .99) == 99

def test_meaning_audit_finds_a_planted_translation():
    d, r = load('ml_test'), np.random.default_rng(1)
    vec = {t: v / np.linalg.norm(v) for t in d.states for v in [r.normal(size=64)]}
    gold, lang = d.field('gold'), d.field('language')
    i = 0; j = next(k for k in range(len(d)) if gold[k] == gold[i] and lang[k] != lang[i])
    vec[d[j].state] = vec[d[i].state]
    m = leakage.meaning_audit(d, embed=lambda ts: np.array([vec[t] for t in ts]))
    assert m['row'][i] == j and m['row'][j] == i and m['z'][i] > m['threshold']
    assert abs(m['expected'] - .01 * sum((gold == g).sum() - 1 for g in gold) / np.mean([(gold != g).sum() for g in gold])) < 1e-4
    f = leakage.flagged(m)
    assert f.iloc[0].id == d[min(i, j)].id and len(f) < sum(z > m['threshold'] for z in m['z'])  # a pair stands once

def test_frozen_files_say_when_the_data_has_changed(tmp_path):
    (tmp_path/'ngram.jsonl').write_text(json.dumps(dict(test='ml_test', sha256='0' * 64, pool='')) + '\n')
    with refuses('ngram.jsonl', 'ml_test.jsonl'): leakage.frozen('ngram', tmp_path)

def test_freezing_twice_gives_the_same_bytes(tmp_path):
    assert leakage.freeze_ngrams(tmp_path).read_bytes() == (leakage.outputs_dir()/'leakage'/'ngram.jsonl').read_bytes()
