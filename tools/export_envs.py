"""The libraries that `polyroute export` writes for, each in a locked environment of its own: `export_envs.py [--lock] [NAME …]`.

An environment holds what its lock file (tools/export/NAME.txt) pins and this environment does not have in that version; the rest, torch and transformers above all, it reads from here. So it is small and made in
seconds, and cannot change this environment. `--lock` renews the lock files instead. Exit status 3: no package index was reached; the tests that need an environment are then skipped and say so."""
import argparse, shutil, subprocess, sys, venv
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from pathlib import Path
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCKS, ENVS = ROOT/'tools'/'export', Path(sys.prefix)/'export'
PACKAGES = {'lm-eval': 'lm-eval[hf]==0.4.13', 'inspect': 'inspect-ai==0.3.285', 'mteb': 'mteb==2.26.24'}
UV = next((str(p) for p in [Path(sys.executable).parent/'uv'] if p.is_file()), None)
GPU = 'nvidia-', 'cuda-', 'triton'     # what torch needs for GPUs: torch itself is never installed here
NOT_REACHED = 3     # exit status
NO_NETWORK = 'dns error', 'client error (Connect)', 'Failed to fetch', 'error sending request', 'NewConnectionError', 'timed out'

def lacking(
    name: str, # of an environment
) -> list: # lines of its lock file
    "Return the pins that this environment does not meet."
    have = {canonicalize_name(d.metadata['Name']): d.version for d in distributions()}
    pins = [Requirement(l) for l in (LOCKS/f'{name}.txt').read_text(encoding='utf-8').split('\n') if l and not l.startswith('#')]
    return [str(r) for r in pins if not (r.marker and not r.marker.evaluate()) and not (r.name in have and r.specifier.contains(have[r.name], prereleases=True))]

def make(
    name: str, # of an environment
) -> str: # why it could not be made; '' if it was
    "Make an environment anew."
    env, why = ENVS/name, ENVS/f'{name}.missing'
    shutil.rmtree(env, ignore_errors=True); why.unlink(missing_ok=True)
    venv.create(env, symlinks=True)
    python = next(p for p in (env/'bin'/'python', env/'Scripts'/'python.exe') if p.exists())
    own, here = (subprocess.run([p, '-c', 'import sysconfig; print(sysconfig.get_path("purelib"))'], capture_output=True, text=True, check=True).stdout.strip() for p in (python, sys.executable))
    Path(own, 'shared.pth').write_text(here + '\n', encoding='utf-8')
    need = env/'need.txt'
    need.write_text('\n'.join(lacking(name)) + '\n', encoding='utf-8')
    uv, pip = [UV, 'pip', 'install', '--python', str(python)], [sys.executable, '-m', 'pip', '--python', str(python), 'install', '--no-compile', '--retries', '1']
    said = ''
    for install in ([uv] if UV else []) + [pip]:      # pip knows of indexes that uv does not
        r = subprocess.run([*install, '-q', '--no-deps', '-r', str(need)], capture_output=True, text=True)
        if not r.returncode: return ''
        said += r.stderr
    shutil.rmtree(env, ignore_errors=True)
    why.write_text(said.strip() + '\n', encoding='utf-8')
    return said.strip()

def lock(
    name: str, # of an environment
):
    "Renew a lock file, keeping to the versions of constraints.txt where they fit."
    out = LOCKS/f'{name}.txt'
    pins = [l for l in (ROOT/'constraints.txt').read_text(encoding='utf-8').split('\n') if '==' in l and ';' not in l]
    out.write_text('\n'.join(pins) + '\n', encoding='utf-8')     # uv keeps what stands in the file that it is to write
    subprocess.run([UV, 'pip', 'compile', '-', '--universal', '--python-version', '3.11', '-q', '--no-annotate', '--no-header', '-o', str(out)], input=PACKAGES[name], text=True, check=True)
    lines = [l for l in out.read_text(encoding='utf-8').split('\n') if l and not l.startswith(GPU)]
    out.write_text(f'# {PACKAGES[name]} and all that it needs, but for the GPU libraries of torch; written by tools/export_envs.py --lock.\n' + '\n'.join(lines) + '\n', encoding='utf-8')

def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('names', nargs='*', metavar='NAME', help=', '.join(PACKAGES))
    parser.add_argument('--lock', action='store_true', help='renew the lock files')
    args = parser.parse_args()
    names = args.names or list(PACKAGES)
    if unknown := set(names) - set(PACKAGES): parser.error(f'no such environment: {", ".join(sorted(unknown))}')
    if args.lock:
        if not UV: sys.exit('renewing a lock file needs uv')
        for n in names: lock(n)
        return
    ENVS.mkdir(exist_ok=True)
    with ThreadPoolExecutor(2) as pool: faults = dict(zip(names, pool.map(make, names)))
    for n, why in faults.items():
        if why: print(f'the environment {n} could not be made: {why.splitlines()[0]}', file=sys.stderr)
    if any(faults.values()): sys.exit(NOT_REACHED if all(not why or any(w in why for w in NO_NETWORK) for why in faults.values()) else 1)

if __name__ == '__main__': main()
