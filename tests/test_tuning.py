"Fine-tuning on mixed pairs: who is trained on what, where the loss is taken, the same weights after a kill, and what changed, against brute force."
import json, os, signal, subprocess, sys, textwrap
from collections import Counter
from dataclasses import replace
from pathlib import Path
import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from conftest import lines_of
from polyroute import romcom_eval as e, tuning as t
from polyroute.items import DataError, MissingPackage, reference, sha256, write_jsonl
from polyroute.responses import Failure, Prompt, read_responses
from polyroute.romcom import LEVELS, TASKS, rows
from polyroute.systems import Card

torch = pytest.importorskip('torch')
pytest.importorskip('peft')
ALL = 'llama-3-2-3b-lora-80-all'
SMALL = dict(tasks=('word_analogy',), levels=(50,), share=.2, learning_rate=1e-2, epochs=3, dropout=.1, batch=4, pool=2, max_new_tokens=24, r=4, alpha=8)
SPLITS = [(share, levels) for share in (.8, .9) for levels in (LEVELS, (50,))]


@pytest.fixture(scope='module')
def home(tmp_path_factory):
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp('tuning')


@pytest.fixture(scope='module')
def tiny(home):
    texts = [x for r in rows('word_analogy') for x in (e.prompt_of(r).messages[0]['content'], e.write_answer(r))]
    t.tiny_model(home/'plain', texts, chat=False, vocabulary=384, width=32)
    return t.tiny_model(home/'tiny', texts, vocabulary=384, width=32)


@pytest.fixture(scope='module')
def config(tiny): return t.config(ALL, str(tiny), **SMALL)


@pytest.fixture(scope='module')
def trained(config, home): return t.tune(config, home/'run')


@pytest.fixture(scope='module')
def both(trained, config):
    "Base and adapter as generators."
    model, tokenizer = t.load_tuned(trained, config)
    return [t.Local(model, tokenizer, c, config, on) for c, on in zip(t.model_cards(config, t.read_adapter(trained)), (False, True))]


def weights(folder): return sha256(folder/'adapter_model.safetensors')


# Configurations

def test_configurations_hold_the_papers_values():
    paper = reference('romcom_paper')
    ft, table = paper['finetuning'], paper['ablation_table14']
    assert len(t.CONFIGS) == 3*2*2*2 == len(set(t.CONFIGS.values()))
    for c in t.CONFIGS.values():
        assert (c.r, c.alpha, c.learning_rate, c.batch, c.warmup, c.epochs) == (ft['r'], ft['alpha'], ft['lr'], ft['batch'], ft['warmup'], ft['epochs'])
        assert set(c.levels) <= set(paper['size']['levels']) and len(c.tasks) == paper['size']['tasks']
    assert {f'{100*c.share:.0f}' for c in t.CONFIGS.values()} == {'80', '90'} == {s[:2] for s in ft['splits_named']}
    assert {c.method for c in t.CONFIGS.values() if t.stated_at(c) == '5.2, Table 14'} == {'qlora'} and 'NF4' in ft['quantisation']
    assert {c.levels for c in t.CONFIGS.values() if t.stated_at(c) == '5.2, Table 14'} == {(table['level'],)} and table['split'] == '90/10'
    assert {m.name.lower().replace('-', '_').replace('.', '_') for m in t.MODELS.values() if m.reported} == {k for k in table if k.startswith('llama')}
    assert t.CONFIGS['gemma-2-7b-lora-80-all'].model == ''


def test_discrepancies_carry_the_papers_numbers():
    paper, text = reference('romcom_paper'), str(t.discrepancies())
    for n in (paper['size']['training_instances'], paper['ablation_table14']['n_eval'], 1680): assert f'{n:,}' in text
    assert '{' not in text


@pytest.mark.parametrize('made, words', [
    (lambda: t.config('llama-4'), 'there is no configuration'), (lambda: t.config(ALL, rank=8), 'no setting'), (lambda: t.config(ALL, levels=(40,)), 'levels are'), (lambda: t.config(ALL, levels=()), 'levels are'),
    (lambda: t.config(ALL, tasks=('nl',)), 'tasks are'), (lambda: t.config(ALL, condition='3-shot'), 'without demonstrations'), (lambda: t.config(ALL, share=1), 'between 0 and 1'), (lambda: t.config(ALL, batch=0), 'batch must'),
    (lambda: t.config(ALL, learning_rate=0.), 'learning_rate is a finite number above 0, not 0.0'), (lambda: t.config(ALL, method='full'), "'lora' or 'qlora'"), (lambda: t.parse_setting('epochs'), "NAME=VALUE, like epochs=1, not 'epochs'"), (lambda: t.parse_setting('levels=25,x'), "'25,x' is no value for levels; 25,50,75 is one"), (lambda: t.parse_setting('epochs=two'), 'no value for epochs'),
    (lambda: t.parse_setting('gradient_checkpointing=1'), 'no value'), (lambda: t.parse_setting('name=x'), 'is none of')])
def test_a_bad_configuration_is_said(made, words):
    with pytest.raises(DataError, match=words): made()


@pytest.mark.parametrize('text, range_', [
    *((f'dropout={v}', 'lies between 0 and 1, 1 excluded') for v in ('1.5', 'nan', '-1', '1', 'inf')), *((f'weight_decay={v}', 'is a finite number, 0 or above') for v in ('-3', 'nan', 'inf')), *((f'warmup={v}', 'lies between 0 and 1') for v in ('7', '-1', 'nan')),
    *((f'clip={v}', 'is a finite number above 0') for v in ('-1', '0', 'nan', 'inf')), *((f'learning_rate={v}', 'is a finite number above 0') for v in ('inf', 'nan', '-1')), *((f'target={v}', "is 'all-linear' or names modules") for v in ('', ' ')),
    *((f'share={v}', 'lies between 0 and 1, in whole percent') for v in ('nan', '.805', '-1', '1', '0')), ('seed=-1', 'lies between'), ('split_seed=-1', 'lies between'), ('epochs=-1', 'at least 0')])
def test_a_setting_out_of_its_range_is_named_with_it(text, range_):
    key, value = t.parse_setting(text)
    with pytest.raises(DataError, match=f'^{key} .*{range_}'): t.config(ALL, **{key: value})


@pytest.mark.parametrize('text', ['dropout=0', 'dropout=.99', 'weight_decay=0', 'warmup=0', 'warmup=1', 'epochs=0', 'share=.01', 'share=.99', 'target=q_proj,v_proj', 'seed=0'])
def test_the_ends_of_ranges_are_allowed(text): t.config(ALL, **dict([t.parse_setting(text)]))


def test_settings_are_read_without_spaces():
    assert t.parse_setting(' tasks = nli, sentiment ') == ('tasks', ('nli', 'sentiment')) and t.parse_setting('method= qlora') == ('method', 'qlora')
    assert t.config(ALL, tasks=('sentiment', 'nli', 'nli'), levels=(75, 25)) == t.config(ALL, tasks=('nli', 'sentiment'), levels=(25, 75))


def test_a_name_says_what_differs_from_the_configuration():
    "No two different runs share a name, and none with other settings passes for a configuration."
    other = dict(method='qlora', share=.7, levels=(25,), condition='own', tasks=('nli',), split_seed=1, r=4, alpha=4, dropout=0., target='q_proj', learning_rate=1e-3, warmup=0., epochs=1, batch=4, micro_batch=4, pool=2, weight_decay=.1, clip=2., max_length=512, max_new_tokens=8, gradient_checkpointing=True)
    assert set(other) | {'seed'} == set(t._SETTINGS)
    made = [t.config(ALL)] + [t.config(ALL, **{k: v}) for k, v in other.items()] + [t.config(ALL, micro_batch=4, epochs=1), t.config(ALL, micro_batch=4, epochs=2), t.config(ALL, **other)]
    assert len({c.name for c in made}) == len({t.after_slug(c) for c in made}) == len(made)
    assert 'qlora' in t.config(ALL, method='qlora').name and '-70-' in t.config(ALL, share=.7).name and t.config(ALL, levels=(25,)).name.endswith('-25')
    assert t.config(ALL, **other).name.startswith('llama-3-2-3b-qlora-70-25-')
    for c in made[1:]:
        told = t.named_configuration(c)
        assert told == '' or c == t.CONFIGS[told]
        assert t.stated_at(c) == ('' if not told else t.stated_at(t.CONFIGS[told]))
    assert t.named_configuration(t.config(ALL, seed=7)) == ALL and t.after_slug(t.config(ALL, seed=7)) == f'{ALL}-seed-7'
    assert t.named_configuration(replace(t.config(ALL), epochs=1)) == '' == t.stated_at(replace(t.config(ALL), epochs=1))       # a name that was kept does not help
    assert t.stated_at(t.config(ALL, '/models/Llama-3.2-3B')) == 'C.1' and t.stated_at(t.config(ALL, '/models/other')) == ''


def test_the_model_before_is_another_one_where_its_answers_are():
    before = lambda **k: t.before_slug(t.config(ALL, 'someone/model', **k))
    assert before() == before(epochs=1) == before(levels=(25, 50), r=4) == before(share=.9, tasks=('nli',)) == 'model-untuned'
    assert len({before(), before(max_new_tokens=8), before(max_length=512), before(method='qlora'), before(max_new_tokens=8, max_length=512)}) == 5
    assert before(max_new_tokens=8) == before(max_new_tokens=8, epochs=1) and before(max_new_tokens=8).startswith('model-untuned-')


def test_the_recorded_command_is_the_run_that_is_frozen():
    from polyroute.items import outputs_dir
    c = t.config('llama-3-2-3b-lora-80-50', 'SmolLM2-135M-Instruct.Q4_1.gguf', **dict(map(t.parse_setting, ('tasks=sentiment', 'max_new_tokens=64', 'micro_batch=4'))))
    if not (outputs_dir()/'systems'/t.after_slug(c)).is_dir(): pytest.skip('the run is not there')
    a = t.read_ablation(t.after_slug(c))
    assert a.config == c and t.stated_at(c) == '' and a.record['before'] == t.before_slug(c) and a.record['config'] == c.name
    for r in a.record['register']['before'] + a.record['register']['after']: assert (r['corrected'] is None) == (r['counted'] < t.COUNTED) and r == t.steady(r)


# Sides

@pytest.mark.parametrize('share, levels', SPLITS)
@pytest.mark.parametrize('condition', ['canonical', 'own'])
def test_no_base_stands_on_both_sides(share, levels, condition):
    c = t.config(ALL, share=share, levels=levels, condition=condition)
    train, held = t.sides(c)
    assert not {r.cluster for r in train} & {r.cluster for r in held}
    assert not {r.id for r in train} & {r.id for r in held}
    assert {r.level for r in train} == set(levels) and all(r.language != 'en' for r in train)
    for task in {r.task for r in train}:
        bases = {r.cluster for r in held if r.task == task}
        assert len(bases) == round((1 - share)*20) and len([r for r in held if r.task == task]) == 13*len(bases)
        assert len([r for r in train if r.task == task]) == (20 - len(bases))*4*len(levels)
        strata = Counter(e.stratum(r) for r in rows(task, 'en') if r.id in bases)
        assert max(strata.values()) - min(strata.values()) <= 1 and len(strata) == min(len(bases), len({e.stratum(r) for r in rows(task, 'en')}))
    assert {r.task for r in train} == {x for x in TASKS if condition in e.conditions_of(x)}


def test_held_out_side_depends_on_share_and_split_seed_alone():
    held = lambda **kw: {r.id for r in t.sides(t.config(ALL, **kw)).held}
    assert held() == held(levels=(50,)) == held(seed=9) == held(method='qlora') != held(split_seed=1)


def test_a_leak_is_refused(config, home, monkeypatch):
    s = t.sides(config)
    with pytest.raises(DataError, match='held out, so none'): t.apart(t.Sides(s.train, (*s.held, next(r for r in rows('word_analogy', 'ta', 25) if r.cluster == s.train[0].cluster))))
    double = replace(s.train[0].base, id='other-99', origin=None)
    with pytest.raises(DataError, match='the same text'): t.apart(t.Sides((replace(double, id='other-98'),), (double,)))
    with pytest.raises(DataError, match='is empty'): t.apart(t.Sides(s.train, ()))
    monkeypatch.setattr(t, 'held_bases', lambda *a: frozenset())         # a split that holds nothing out
    with pytest.raises(DataError, match='is empty'): t.tune(config, home/'leak')
    assert not (home/'leak').exists()


def test_what_reaches_the_model_is_of_the_training_side(config, home, monkeypatch):
    "The texts of every pair that is encoded, against the texts of the held-out side."
    seen, encode = [], t.encode_pair
    monkeypatch.setattr(t, 'encode_pair', lambda tokenizer, p, a, *more: seen.append((p, a)) or encode(tokenizer, p, a, *more))
    run = t.TuningRun(config, Path(config.model))
    held = t.sides(config).held
    assert len(seen) == len(run.pairs) == 16
    assert not {p.id for p, _ in seen} & {r.id for r in held} and not any(r.state in p.messages[0]['content'] for p, _ in seen for r in held)
    assert all(a == e.write_answer(p.fields['row']) and list(p.messages) == list(e.prompt_of(p.fields['row']).messages) for p, a in seen)


# Masks

LLAMA3 = "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n\n{{ m['content'] | trim }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>\n\n{% endif %}"
THINKS = "{% for m in messages %}<|{{ m['role'] }}|>\n{% if m['role'] == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m['content'] }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
REWRITES = "{% for m in messages %}[{{ m['content'] | upper }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}"
TEMPLATES = {'turns': t.CHAT, 'llama': LLAMA3, 'thinks': THINKS, 'rewrites': REWRITES, 'none': None}


@pytest.mark.parametrize('template', TEMPLATES)
def test_loss_is_on_the_answer_and_its_end_alone(tiny, template):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    tokenizer.chat_template = TEMPLATES[template]
    ends = ['<|end|>', '</s>']
    for r in [r for task in TASKS for r in rows(task, 'ta', 75)[:2]]:
        p, a = t.pairs_of([r])[0]
        got = t.encode_pair(tokenizer, p, a, 10**6, ends)
        n = sum(l == t.IGNORED for l in got.labels)
        assert got.labels == [t.IGNORED]*n + got.ids[n:] and got.cut == 0
        assert got.ids[:n] == t.prompt_ids(tokenizer, p.messages)                      # what stands there when an answer is generated
        end = {'rewrites': '</s>', 'none': '</s>'}.get(template, '<|end|>')
        before = '<think>\n\n</think>\n\n' if template == 'thinks' else ''
        assert tokenizer.decode(got.ids[n:]) == before + a + end                       # once, and nothing behind it
        text = tokenizer.decode(got.ids[:n])
        assert text.count('<s>') == (template == 'llama') and text.endswith({'turns': '<|assistant|>\n', 'llama': '<|assistant|>\n\n', 'thinks': '<|assistant|>\n', 'rewrites': '>', 'none': 'Answer:\n'}[template])


def test_a_tokenizer_that_opens_texts_opens_prompts_once(home, tiny):
    from tokenizers import processors
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(home/'plain')
    assert tokenizer.bos_token_id not in t.prompt_ids(tokenizer, e.prompts('nli')[0].messages)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single='<s> $A', special_tokens=[('<s>', 0)])
    ids = t.encode_pair(tokenizer, e.prompts('nli')[0], 'Label: neutral', 60).ids
    assert ids[0] == 0 and ids.count(0) == 1 and len(ids) == 60                        # also where the prompt was cut


def test_loss_by_brute_force_and_without_regard_to_padding(config):
    run = t.TuningRun(replace(config, dropout=0.), Path(config.model))
    batch = sorted(run.pairs, key=lambda p: len(p.ids))[::5]
    assert len({len(p.ids) for p in batch}) > 1
    nll = []
    with torch.no_grad():
        for p in batch:
            logp = run.model(input_ids=torch.tensor([p.ids])).logits[0].log_softmax(-1)
            nll += [-logp[i - 1, p.ids[i]].item() for i in range(1, len(p.ids)) if p.labels[i] != t.IGNORED]
    assert run.loss(batch) == pytest.approx(np.mean(nll), rel=1e-5)
    first = [p.grad.clone() for p in run.trained]
    for other, pad in ((replace(run.config, micro_batch=1), 1), (replace(run.config, micro_batch=3), 7)):
        for p in run.trained: p.grad = None
        run.config, run.tokenizer.pad_token_id = other, pad
        assert run.loss(batch) == pytest.approx(np.mean(nll), rel=1e-5)
        for a, b in zip(first, run.trained): assert torch.allclose(a, b.grad, atol=1e-5)


def test_cut_prompts_are_told_and_answers_are_never_cut(config, home):
    run = t.TuningRun(replace(config, max_length=100), Path(config.model))
    cut = [p for p in run.pairs if p.cut]
    assert cut and all(len(p.ids) == 100 for p in cut)
    full = {p.id: p for p in t.TuningRun(config, Path(config.model)).pairs}
    answer = lambda p: [l for l in p.labels if l != t.IGNORED]
    assert all(answer(p) == answer(full[p.id]) and p.cut == len(full[p.id].ids) - 100 for p in cut)
    made = t.tune(replace(config, max_length=100, epochs=0), home/'cut')
    assert t.read_adapter(made)['cut_prompts'] == {p.id: p.cut for p in cut}
    with pytest.raises(DataError, match=r"id 'word_analogy.*takes \d+ tokens and leaves no room.*max_length"): t.tune(replace(config, max_length=30), home/'long')
    assert not (home/'long').exists()


# Training

def test_the_adapter_alone_changes(config, trained):
    from safetensors.torch import load_file
    run = t.TuningRun(config, Path(config.model))
    before = {k: v.clone() for k, v in run.model.state_dict().items()}
    opt, schedule = run.optimiser()
    t.train_epoch(run, opt, schedule, 0)
    changed = {k for k, v in run.model.state_dict().items() if not torch.equal(v, before[k])}
    assert changed and all('.lora_' in k for k in changed) and {k for k in before if '.lora_B.' in k} <= changed
    assert all(n.split('.')[-3] in ('lora_A', 'lora_B') for n, p in run.model.named_parameters() if p.requires_grad)
    assert all('lora_' in k for k in load_file(trained/'adapter_model.safetensors'))
    kept = load_file(Path(config.model)/'model.safetensors')
    model, _ = t.load_tuned(trained, config)
    of = {k.replace('base_model.model.', '').replace('.base_layer', ''): v for k, v in model.state_dict().items()}
    assert all(torch.equal(v, of[k]) for k, v in kept.items())


def test_merged_model_gives_the_same(config, trained, both, home):
    merged, tokenizer = t.load_base(t.write_merged(home/'merged', trained, config))
    ids = torch.tensor([t.prompt_ids(tokenizer, p.messages) for p in e.prompts('word_analogy')[:1]])
    with torch.inference_mode():
        a, b = merged(input_ids=ids).logits, both[1].model(input_ids=ids).logits
        with both[1].model.disable_adapter(): base = both[1].model(input_ids=ids).logits
    assert torch.allclose(a, b, atol=1e-4) and not torch.allclose(a, base, atol=1e-2)
    with pytest.raises(DataError, match='new folder'): t.write_merged(home/'merged', trained, config)


def test_schedule_is_a_cosine_behind_a_warm_up(config):
    run = t.TuningRun(replace(config, epochs=25, batch=1, warmup=.03, learning_rate=1e-4), Path(config.model))
    opt, schedule = run.optimiser()
    rates = []
    for _ in range(400): rates.append(opt.param_groups[0]['lr']); opt.step(); schedule.step()
    rise = 12                                                                          # 3% of 400 steps
    want = [1e-4*(s/rise if s < rise else .5*(1 + np.cos(np.pi*(s - rise)/(400 - rise)))) for s in range(400)]
    assert np.allclose(rates, want)


def test_record_says_how_it_was_made(config, trained):
    r = json.loads((trained/'polyroute.json').read_text())
    assert [h['epoch'] for h in r['history']] == [1, 2, 3] and r['history'][-1]['loss'] < r['history'][0]['loss']
    assert r['recipe']['r'] == 4 and r['data'] == {'word_analogy': t.data_sha256(['word_analogy'])['word_analogy']} and len(r['base']['sha256']) == 64
    assert r['sha256'] == weights(trained) and r['packages']['peft'] and r['pairs'] == 16 and r['answer_tokens'] > 16 and not r['cut_prompts']
    assert set(r['bases']) == {x.cluster for x in t.sides(config).train} and str(trained.parent) not in json.dumps(r)
    assert sorted(p.name for p in trained.parent.iterdir()) == ['adapter', 'epoch-1', 'epoch-2', 'epoch-3']
    assert weights(trained.parent/'epoch-3') == weights(trained) != weights(trained.parent/'epoch-2')


def test_same_seed_same_weights_other_seed_others(config, trained, home):
    assert weights(t.tune(config, home/'again')) == weights(trained) != weights(t.tune(replace(config, seed=2), home/'other'))
    stamp = (home/'again'/'adapter'/'adapter_model.safetensors').stat().st_mtime_ns
    assert t.tune(config, home/'again') == home/'again'/'adapter' and (home/'again'/'adapter'/'adapter_model.safetensors').stat().st_mtime_ns == stamp
    with pytest.raises(DataError, match='other settings'): t.tune(replace(config, seed=2), home/'again')


@pytest.mark.parametrize('stop', [2, 5, 11])
def test_interrupted_anywhere_ends_in_the_same_weights(config, trained, home, stop):
    here = home/f'stopped-{stop}'
    def die(done, steps, loss):
        assert steps == 12
        if done == stop: raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt): t.tune(config, here, progress=die)
    assert not (here/'adapter').exists() and (here/'state.pt').is_file() == (stop > 4)
    seen = []
    made = t.tune(config, here, progress=lambda done, *_: seen.append(done))
    assert weights(made) == weights(trained) and seen[0] == (stop - 1)//4*4 + 1 and seen[-1] == 12
    losses = lambda f: [h['loss'] for h in t.read_adapter(f)['history']]
    assert losses(made) == losses(trained) and not (here/'state.pt').exists()


def test_killed_process_ends_in_the_same_weights(config, trained, home):
    here = home/'killed'
    code = textwrap.dedent(f'''
        import time, torch
        torch.set_num_threads(1)
        from polyroute import tuning as t
        def slow(done, steps, loss): print(done, flush=True); time.sleep(.05)
        t.tune(t.config({ALL!r}, {config.model!r}, **{SMALL!r}), {str(here)!r}, progress=slow)''')
    p = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    while (line := p.stdout.readline()) and int(line) < 6: pass
    p.send_signal(signal.SIGKILL); p.wait()
    assert (here/'state.pt').is_file() and not (here/'adapter').exists()
    assert weights(t.tune(config, here)) == weights(trained)


def test_untrained_adapter_changes_nothing(config, home, both):
    c = replace(config, epochs=0)
    model, tokenizer = t.load_tuned(t.tune(c, home/'none'), c)
    asked = e.prompts('word_analogy')[:3]
    assert t.Local(model, tokenizer, both[1].card, c, True).generate(asked) == both[0].generate(asked)


# Faults

def test_a_target_without_a_match_names_the_modules(config, home):
    for target in ('nosuch', 'q_proj,nosuch', '.*nosuch', 'norm'):
        with pytest.raises(DataError, match='matches no module.*down_proj.*q_proj.*all-linear'): t.tune(replace(config, target=target), home/'target')
    with pytest.raises(DataError, match='no regular expression'): t.tune(replace(config, target='(q_proj'), home/'target')
    assert not (home/'target').exists()
    for target in ('q_proj, v_proj', r'.*\.[qv]_proj'):
        run = t.TuningRun(replace(config, target=target), Path(config.model))
        assert {n.split('.lora_')[0].rpartition('.')[2] for n, p in run.model.named_parameters() if p.requires_grad} == {'q_proj', 'v_proj'}


def test_a_base_that_is_not_there_is_said_before_anything_is_imported(tmp_path):
    code = f"""
        import sys
        from polyroute import tuning as t
        try: t.tune(t.config({ALL!r}, '/nonexistent/model'))
        except t.DataError as e: print(e, sorted({{'torch', 'peft', 'transformers'}} & set(sys.modules)))"""
    out = subprocess.run([sys.executable, '-c', textwrap.dedent(code)], capture_output=True, text=True, check=True).stdout
    assert 'no such folder' in out and out.rstrip().endswith('[]')


def test_a_bad_base_is_said(home, tiny, config, monkeypatch):
    for model, words in ((home/'nowhere', 'no such folder'), ('', 'names no model'), (home, 'no config.json')):
        with pytest.raises(DataError, match=words): t.tune(replace(config, model=str(model)), home/'bad')
    with pytest.raises(DataError, match='names no model'): t.tune(t.CONFIGS['gemma-2-7b-lora-80-all'], home/'bad')
    (home/'hollow').mkdir(); (home/'hollow'/'config.json').write_text((tiny/'config.json').read_text())
    with pytest.raises(DataError, match='weights are missing'): t.base_folder(home/'hollow')
    whole = (tiny/'model.safetensors').read_bytes()
    (home/'hollow'/'model.safetensors').write_bytes(whole[:len(whole)//2])
    for f in ('tokenizer.json', 'tokenizer_config.json'): (home/'hollow'/f).write_text((tiny/f).read_text())
    with pytest.raises(DataError, match='hollow.*(cannot be read|cannot be loaded)'): t.tune(replace(config, model=str(home/'hollow')), home/'bad')
    (home/'hollow'/'model.safetensors').write_bytes(whole); (home/'hollow'/'config.json').write_text('{"model_type": "nonsense"}')
    with pytest.raises(DataError, match='cannot be loaded'): t.load_base(home/'hollow')
    import huggingface_hub
    def offline(*a, **k): raise OSError('offline')
    monkeypatch.setattr(huggingface_hub, 'snapshot_download', offline)
    with pytest.raises(DataError, match='meta-llama/Llama-3.2-3B could not be had from the hub'): t.tune(t.CONFIGS[ALL], home/'bad')
    assert not (home/'bad').exists()


def test_a_repository_goes_through_the_same_call(tiny, config, home, monkeypatch, trained):
    import huggingface_hub
    asked = []
    monkeypatch.setattr(huggingface_hub, 'snapshot_download', lambda name, **k: asked.append((name, k['revision'])) or str(tiny))
    made = t.tune(replace(config, model='someone/tiny', epochs=0), home/'hub', revision='v1')
    assert ('someone/tiny', 'v1') in asked
    assert t.read_adapter(made)['base'] == t.read_adapter(trained)['base'] | dict(name='someone/tiny', revision='v1')


def test_a_gguf_file_goes_through_the_same_call(tiny, config, home, trained, monkeypatch):
    "Unpacked once to the cache, and known by the file's own SHA-256."
    import shutil
    monkeypatch.setenv('POLYROUTE_CACHE', str(home/'cache'))
    (home/'Some_Model.Q4.gguf').write_bytes(b'GGUF and more')
    (home/'model.bin').write_bytes(b'')
    with pytest.raises(DataError, match='a folder, a .gguf file, or a repository'): t.base_folder(home/'model.bin')
    monkeypatch.setattr(t, 'find_spec', lambda name: None)
    with pytest.raises(MissingPackage, match='package gguf'): t.base_folder(home/'Some_Model.Q4.gguf')
    monkeypatch.setattr(t, 'find_spec', lambda name: True)
    with pytest.raises(DataError, match='Some_Model.Q4.gguf.*cannot be read as a language model'): t.base_folder(home/'Some_Model.Q4.gguf')
    made = []
    def unpack(file, folder):
        made.append(file)
        for f in tiny.iterdir(): shutil.copy(f, folder)
        (folder/t._SOURCE).write_text(json.dumps(dict(sha256=sha256(file))))
    monkeypatch.setattr(t, '_unpack', unpack)
    c = t.config(ALL, str(home/'Some_Model.Q4.gguf'), **SMALL)
    assert c.name.startswith('some-model-q4-lora-20-50-') and t.config(ALL, c.model).name == 'some-model-q4-lora-80-all'
    t.tune(replace(c, epochs=0), home/'from-gguf')
    assert t.base_folder(c.model) == t.base_folder(c.model) and len(made) == 1
    assert t.read_adapter(home/'from-gguf'/'adapter')['base'] == dict(name='Some_Model.Q4.gguf', revision='', sha256=sha256(home/'Some_Model.Q4.gguf'))


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a CUDA device')
def test_qlora_needs_cuda_and_says_so(config, home):
    with pytest.raises(DataError, match='CUDA device'): t.tune(replace(config, method='qlora'), home/'q')
    with pytest.raises(DataError, match='CUDA device'): t.tune(t.CONFIGS['llama-3-2-3b-qlora-90-50'], home/'q')     # before anything is fetched


def test_a_package_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, 'peft', None)
    with pytest.raises(MissingPackage, match='polyroute.tuning'): t.check_method('lora')
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True); monkeypatch.setattr(t, 'find_spec', lambda name: None)
    with pytest.raises(MissingPackage, match='bitsandbytes'): t.check_method('qlora')


def test_tokenizer_without_end_is_refused_and_without_padding_is_fine(config, home, trained):
    import shutil
    shutil.copytree(config.model, home/'no-pad'); shutil.copytree(config.model, home/'no-end')
    def without(folder, *names):
        path = folder/'tokenizer_config.json'
        path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k not in names}))
    without(home/'no-pad', 'pad_token'); without(home/'no-end', 'pad_token', 'eos_token')
    assert weights(t.tune(replace(config, model=str(home/'no-pad')), home/'padded')) == weights(trained)
    with pytest.raises(DataError, match='no end-of-text token'): t.tune(replace(config, model=str(home/'no-end')), home/'endless')


def test_a_full_disk_is_said_and_leaves_what_was_whole(config, trained, home, monkeypatch):
    here, write = home/'full', t.write_atomic
    def full(*a, **k): raise OSError(28, 'No space left on device')
    monkeypatch.setattr(t, 'write_atomic', full)
    with pytest.raises(DataError, match='disk is full'): t.tune(config, here)
    assert not (here/'state.pt').exists() and not (here/'adapter').exists()
    monkeypatch.setattr(t, 'write_atomic', write)
    import peft
    monkeypatch.setattr(peft.PeftModel, 'save_pretrained', full)
    with pytest.raises(DataError, match='disk is full'): t.tune(config, home/'full-2')
    assert not list((home/'full-2').iterdir())
    monkeypatch.undo()
    assert weights(t.tune(config, here)) == weights(trained)


def test_half_written_files_are_said(config, trained, home):
    import shutil
    (home/'half').mkdir(); (home/'half'/'state.pt').write_bytes(b'PK\x03\x04 and no more')
    with pytest.raises(DataError, match='state.pt.*cannot be read'): t.tune(config, home/'half')
    for name, words in (('polyroute.json', 'it has no polyroute.json'), ('adapter_model.safetensors', 'it has no adapter_model')):
        shutil.copytree(trained, home/f'without-{name}'); (home/f'without-{name}'/name).unlink()
        with pytest.raises(DataError, match=words): t.read_adapter(home/f'without-{name}')
    shutil.copytree(trained, home/'cut-adapter')
    f = home/'cut-adapter'/'adapter_model.safetensors'
    f.write_bytes(f.read_bytes()[:-10])
    with pytest.raises(DataError, match='not the weights that the record names'): t.load_tuned(home/'cut-adapter', config)
    (home/'cut-adapter'/'polyroute.json').write_text('{')
    with pytest.raises(DataError, match='not a JSON file'): t.read_adapter(home/'cut-adapter')


def test_another_base_is_refused(config, trained, home):
    other = t.tiny_model(home/'elsewhere', ['some other words'], vocabulary=300, width=32, seed=1)
    with pytest.raises(DataError, match='trained on another base'): t.load_tuned(trained, replace(config, model=str(other)))


def test_a_rate_that_is_too_high_is_said(config, home, monkeypatch):
    monkeypatch.setattr(t.TuningRun, 'loss', lambda self, batch: float('nan'))
    with pytest.raises(DataError, match='loss is nan after 1 steps of epoch 1'): t.tune(config, home/'nan')


# Answers

def test_answers_are_greedy_whatever_the_batch(both, config):
    asked = [p for task in ('word_analogy', 'nli') for p in e.prompts(task)[:2]]
    for g in both:
        one = t.Local(g.model, g.tokenizer, g.card, g.config, g.adapted, batch=1)
        assert g.generate(asked) == one.generate(asked)
    ids = t.prompt_ids(both[1].tokenizer, asked[0].messages)
    grown, ends = list(ids), t.end_tokens(both[1].model, both[1].tokenizer)
    with torch.inference_mode():
        while len(grown) < len(ids) + 24 and grown[-1] not in ends: grown.append(int(both[1].model(input_ids=torch.tensor([grown])).logits[0, -1].argmax()))
    assert both[1].generate(asked[:1]) == [both[1].tokenizer.decode(grown[len(ids):], skip_special_tokens=True).strip()]
    assert both[0].generate(asked[:1]) != both[1].generate(asked[:1])


def test_a_prompt_without_room_loses_its_beginning(both):
    g = t.Local(both[1].model, both[1].tokenizer, both[1].card, replace(both[1].config, max_length=60), True)
    p = e.prompts('word_analogy')[0]
    whole = t.prompt_ids(g.tokenizer, p.messages)
    assert g.encode(p) == whole[-36:] and g.cut == {p.id: len(whole) - 36}
    with pytest.raises(DataError, match='leaves no room'): t.Local(g.model, g.tokenizer, g.card, replace(g.config, max_new_tokens=60)).encode(p)


# Before and after

def replayed(config, folder, slug, write):
    "A generator that reads its answers to the held-out side from a file."
    asked = [p for ps in t.held_prompts(config).values() for p in ps]
    made = [dict(id=p.id, response=x) for p in asked if (x := write(p)) is not None]
    return e.FromFile(write_jsonl(folder/f'{slug}.jsonl', made), slug)


def record(config): return dict(config=config.name, version='v', recipe=config.to_json(), base=dict(name='someone/model', sha256='0'*64), bases=sorted({r.cluster for r in t.sides(config).train}), pairs=len(t.sides(config).train), sha256='1'*64, parameters=3_000_000)


@pytest.fixture(scope='module')
def replay(tmp_path_factory):
    "A model that is right in English and on every third mixed row, and after tuning on all but a few."
    folder = tmp_path_factory.mktemp('replay')
    c = t.config(ALL, 'someone/model')
    digit = lambda p: int(sha256_of(p.id)[:4], 16)
    gold, wrong = lambda p: e.write_answer(p.fields['row']), 'I cannot say.'
    before = replayed(c, folder, 'model-untuned', lambda p: gold(p) if p.fields['row'].level == 0 or digit(p) % 3 == 0 else wrong)
    after = replayed(c, folder, c.name, lambda p: None if digit(p) % 41 == 0 else gold(p) if digit(p) % 7 or p.fields['row'].task == 'math' else wrong)
    t.freeze_ablation(c, record(c), before, after, folder/'out', with_register=False)
    return folder, c


def sha256_of(text):
    import hashlib
    return hashlib.sha256(text.encode()).hexdigest()


def test_accuracy_and_tests_by_brute_force(replay):
    folder, c = replay
    a = t.read_ablation(c.name, folder/'out')
    assert len(a.before) == len(a.after) == 7*4*13 and a.config == c
    cells, p = t.change_tests(a), {}
    assert [(x.task, x.level) for x in cells] == [(task, l) for task in TASKS for l in LEVELS]
    for x in cells:
        b, f = ({o.id: o.right for o in side if (o.task, o.level) == (x.task, x.level)} for side in (a.before, a.after))
        assert len(b) == x.change.items == 16 and x.change.bases == 4
        gained, lost = sum(f[i] and not b[i] for i in b), sum(b[i] and not f[i] for i in b)
        assert (x.change.gained, x.change.lost) == (gained, lost)
        p[x.task, x.level] = stats.binomtest(min(gained, lost), gained + lost).pvalue if gained + lost else 1.
        assert x.change.p == pytest.approx(p[x.task, x.level])
    assert [x.holm for x in cells] == pytest.approx(multipletests(list(p.values()), method='holm')[1])
    assert [x.bonferroni for x in cells] == pytest.approx(multipletests(list(p.values()), method='bonferroni')[1])
    table = t.level_table(a, n_boot=200)
    mixed = [o.right for o in a.after if o.level == 75 and o.task != 'toxicity']
    assert [r['Level'] for r in table] == ['English', '25%', '50%', '75%'] and [r['Items'] for r in table] == [24, 96, 96, 96] and all(r['Bases'] == 24 for r in table)
    assert table[3]['After'].startswith(f'{100*np.mean(mixed):.1f} [') and table[0]['Before'].startswith('100.0')
    assert len(t.test_table(a)) == 21 and len(t.test_table(a)[0]) == 12


def test_fewer_cells_are_still_corrected_over_all_pairs(replay, tmp_path):
    folder, _ = replay
    c = t.config(ALL, 'someone/model', tasks=('nli',))
    gold = lambda p: e.write_answer(p.fields['row'])
    t.freeze_ablation(c, record(c), replayed(c, tmp_path, 'b', lambda p: 'no'), replayed(c, tmp_path, c.name, gold), tmp_path/'out', with_register=False)
    cells = t.change_tests(t.read_ablation(c.name, tmp_path/'out'))
    assert len(cells) == 3 and [x.bonferroni for x in cells] == pytest.approx([21*x.change.p for x in cells])
    assert [x.holm for x in cells] == pytest.approx([21*cells[0].change.p]*3)            # equal p: the first multiplier bounds the others


def test_missing_answers_are_wrong_and_unread(replay):
    folder, c = replay
    a = t.read_ablation(c.name, folder/'out')
    r = {task: read_responses(c.name, task, 'romcom', t.held_out_condition(c), folder/'out') for task in TASKS}
    missing = {i for x in r.values() for i in x.failures}
    assert missing and all(not o.right and not o.read for o in a.after if o.id in missing)


def test_held_out_answers_never_stand_among_runs_of_the_suite(replay):
    folder, c = replay
    from polyroute.systems import cards
    assert c.name in {x.slug for x in cards(folder/'out')}
    for condition in e.CONDITIONS: assert e.results(condition, folder/'out') == []


def test_not_run_is_said(replay, tmp_path):
    folder, c = replay
    assert t.read_ablation(c.name, tmp_path) is None and t.ablations(tmp_path) == []
    import shutil
    shutil.copytree(folder/'out', tmp_path/'out')
    (tmp_path/'out'/'systems'/'model-untuned'/'romcom'/f'nli.{t.held_out_condition(c)}.responses.jsonl').unlink()
    assert t.read_ablation(c.name, tmp_path/'out') is None
    for table in (t.level_table(None), t.test_table(None), t.register_table(None), t.ablation_table([], ['x'])): assert table and all('not run' in r.values() for r in table)
    assert [r['Run'] for r in t.ablation_table(t.ablations(folder/'out'), ['x'])] == [c.name, 'x']
    assert 'not run' in t.register_table(t.read_ablation(c.name, folder/'out'))[0].values()       # frozen without its defection rates


def test_answers_that_were_replaced_are_not_compared(replay, tmp_path):
    "The answers before tuning are shared by all runs of a model, so one of them may freeze them anew."
    folder, c = replay
    import shutil
    shutil.copytree(folder/'out', tmp_path/'out')
    t.answer_held_out(replayed(c, tmp_path, 'model-untuned', lambda p: 'other'), c, tmp_path/'out')
    with pytest.raises(DataError, match='model-untuned were frozen anew'): t.read_ablation(c.name, tmp_path/'out')


def test_a_run_that_saw_a_held_out_base_is_refused(replay, tmp_path):
    folder, c = replay
    import shutil
    shutil.copytree(folder/'out', tmp_path/'out')
    path = tmp_path/'out'/'systems'/c.name/'tuning.json'
    made = json.loads(path.read_text())
    path.write_text(json.dumps(made | dict(bases=made['bases'] + [t.sides(c).held[0].cluster])))
    with pytest.raises(DataError, match='which is held out'): t.read_ablation(c.name, tmp_path/'out')
    path.write_text('{"config": "x"}')
    with pytest.raises(DataError, match='the record lacks recipe'): t.read_ablation(c.name, tmp_path/'out')
    path.write_text('{')
    with pytest.raises(DataError, match='not a JSON file'): t.read_ablation(c.name, tmp_path/'out')


def test_defection_before_and_after(replay, tmp_path, monkeypatch):
    folder, c = replay
    seen = []
    def tagged(answers):
        "A rate that follows from the answers: the share that is unread text."
        seen.append(len(answers))
        return [e.Register('whole', answers[0][0].language, l, len(x), len(x), np.mean([a == 'I cannot say.' for a in x]), .5, .25, float('nan')) for l in LEVELS for x in [[a for r, a in answers if r.level == l]]]
    monkeypatch.setattr(t, 'register', tagged)
    gold = lambda p: e.write_answer(p.fields['row'])
    t.freeze_ablation(c, record(c), replayed(c, tmp_path, 'model-untuned', lambda p: 'I cannot say.'), replayed(c, tmp_path, c.name, gold), tmp_path/'out')
    table = t.register_table(t.read_ablation(c.name, tmp_path/'out'))
    assert seen == [84]*8 and len(table) == 12 and {(r['Before'], r['After'], r['Answers']) for r in table} == {('100.0', '0.0', 28)}
    assert t.register_table(t.read_ablation(c.name, tmp_path/'out'), 'label') == []


def test_an_interval_holds_its_rate_or_there_is_none():
    row = lambda counted, **k: dict(part='whole', language='gu', level=50, answers=9, counted=counted, raw=1.) | k
    got = t.steady(row(4, corrected=.99, lo=1., hi=1.))
    assert got == row(4, corrected=None, lo=None, hi=None)
    assert t.steady(row(5, corrected=.99, lo=1., hi=1.)) == row(5, corrected=.99, lo=.99, hi=1.)
    assert t.steady(row(9, corrected=.5, lo=.4, hi=.6)) == row(9, corrected=.5, lo=.4, hi=.6)
    a = t.Ablation(None, dict(register={w: [row(n, corrected=.99, lo=1., hi=1.)] for w, n in (('before', 2), ('after', 6))}), [], [])
    shown, = t.register_table(a)
    assert (shown['Before'], shown['Before, corrected'], shown['Counted before'], shown['After, corrected']) == ('100.0', '–', 2, '99.0 [99.0–100.0]')


def test_before_and_after_of_a_real_run(both, config, trained, tmp_path):
    both = [t.Local(g.model, g.tokenizer, g.card, replace(config, max_new_tokens=4), g.adapted) for g in both]
    t.freeze_ablation(config, t.read_adapter(trained), *both, tmp_path, with_register=False)
    a = t.read_ablation(config.name, tmp_path)
    assert len(a.before) == 16*13 and a.record['before'] == t.before_slug(config) and a.config == replace(config, model=Path(config.model).name) and a.record['sha256'] == weights(trained)
    did = []
    t.freeze_ablation(config, t.read_adapter(trained), *both, tmp_path, with_register=False, said=lambda *x: did.append(x[-1]))
    assert did == ['kept', 'kept']
    folder = tmp_path/'systems'/config.name
    assert len(lines_of(folder/'romcom'/f'word_analogy.{t.held_out_condition(config)}.responses.jsonl')) == 1 + 16*13
    card, plain = (json.loads((tmp_path/'systems'/x/'system.json').read_text()) for x in (config.name, t.before_slug(config)))
    r = t.read_adapter(trained)
    assert (plain['params'], card['params']) == tuple(f'{n/1e6:.3g}M' for n in (r['parameters'] - r['trained_parameters'], r['parameters']))
    assert card['recipe']['adapter'] == weights(trained) and card['packages']['peft'] and str(tmp_path) not in json.dumps(card)


# CLI

def test_command_lists_configurations():
    from conftest import run_command
    out = run_command('romcom', 'tune', '--list')
    assert all(n in out for n in t.CONFIGS) and '5.2, Table 14' in out
    assert len(json.loads(run_command('romcom', 'tune', '--list', '--json'))) == 24


def test_command_trains_freezes_and_prints(tiny, config, tmp_path):
    from conftest import run_command
    settings = ['--licence', 'mit'] + [x for k, v in SMALL.items() for x in ('--set', f'{k}={",".join(map(str, v)) if isinstance(v, tuple) else v}')]
    args = ['romcom', 'tune', ALL, '--model', tiny, *settings, '--set', 'max_new_tokens=4', '--folder', tmp_path/'run', '--root', tmp_path/'out', '--no-register']
    out = run_command(*args, '--merged', tmp_path/'merged')
    assert '16 pairs' in out and 'English' in out and '75%' in out and (tmp_path/'merged'/'model.safetensors').is_file()
    config = t.config(ALL, str(tiny), **SMALL | dict(max_new_tokens=4))
    assert config.name.startswith('tiny-lora-20-50-')
    again = run_command(*args, '--json')
    got = json.loads(again[again.index('{'):])
    assert got['recipe'] == config.to_json() and got['adapter'] == str(tmp_path/'run'/'adapter') and again.count('kept') == 2
    show = lambda *more: run_command('romcom', 'tuned', config.name, '--root', tmp_path/'out', *more)
    assert 'English' in show() and 'Word analogy' in show('--tests') and 'not run' in show('--register')
    assert json.loads(show('--json'))['tests'][0]['change']['items'] == 64
    told = run_command('romcom', 'tuned', '--root', tmp_path/'out')
    assert config.name in told and '24 of 24 configurations have not run; --all lists them' in told and 'not run' not in told.replace('have not run', '') and ALL not in told
    every = run_command('romcom', 'tuned', '--root', tmp_path/'out', '--all')
    assert all(n in every for n in t.CONFIGS) and config.name in every and '--all' not in every
    rows_ = lambda *more: json.loads(run_command('romcom', 'tuned', '--root', tmp_path/'out', '--json', *more))
    assert [r['Run'] for r in rows_()] == [config.name] and [r['Run'] for r in rows_('--all')] == [config.name, *t.CONFIGS]
    assert json.loads((tmp_path/'out'/'systems'/config.name/'system.json').read_text())['licence'] == 'mit'


def test_command_faults_are_messages(tmp_path):
    from conftest import run_command
    told = run_command('romcom', 'tune', 'llama', code=1)
    assert "there is no configuration 'llama'; `polyroute romcom tune --list` names them" in told and ALL not in told
    assert 'lies between' in run_command('romcom', 'tune', ALL, '--seed', '-1', '--set', 'seed=3', code=1)
    assert 'NAME=VALUE' in run_command('romcom', 'tune', ALL, '--set', 'epochs', code=1)
    assert 'dropout lies between 0 and 1' in run_command('romcom', 'tune', ALL, '--set', 'dropout=1.5', code=1)
    assert run_command('romcom', 'tuned', '--root', tmp_path) == '24 of 24 configurations have not run; --all lists them\n'
    assert '--list names them' in run_command('romcom', 'tune', code=2)
    assert 'no such folder' in run_command('romcom', 'tune', ALL, '--model', tmp_path/'none', code=1)
    assert 'is none of' in run_command('romcom', 'tune', ALL, '--set', 'rank=3', code=1)
    assert 'has not run' in run_command('romcom', 'tuned', 'x', '--root', tmp_path, code=1)
    assert 'choose one' in run_command('romcom', 'tuned', 'x', '--tests', '--register', code=2)
