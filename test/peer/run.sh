#!/usr/bin/env bash
# Compares Baton with others: `run.sh [references] [clients]`, both by default.
#   references  llama.cpp, the reference tokenizers and template engines
#   clients     OpenAI's official clients for Go and JavaScript
# What they need is fetched into $PEER (default ~/.cache/baton-peer). What cannot be had
# is skipped with a line that says why.
#
# Exit status: 0 compared and equal, 3 everything was skipped, else a difference.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export PEER=${PEER:-${XDG_CACHE_HOME:-$HOME/.cache}/baton-peer}
npm=$PEER/npm
ran=0
skip() { echo "skipped: $*"; }

# llama.cpp into $PEER/llama.
set_up_llama() {
	local rc=0
	"$root/peers/llama/setup.sh" || rc=$?
	case $rc in
	0) return 0 ;;
	3) return 1 ;; # it has said why
	*) echo "peers/llama/setup.sh failed with status $rc" >&2; exit 1 ;;
	esac
}

# The pinned packages into $PEER/npm. No package's own scripts are run.
set_up_npm() {
	command -v npm >/dev/null && command -v node >/dev/null || { skip "node or npm is missing"; return 1; }
	mkdir -p "$npm"
	if cmp -s "$here/package.json" "$npm/installed.json"; then return 0; fi
	cp "$here/package.json" "$npm/package.json"
	timeout 600 npm install --prefix "$npm" --ignore-scripts --no-audit --no-fund --no-package-lock --omit=peer --omit=optional --loglevel=error </dev/null ||
		{ skip "npm cannot install the packages of test/peer/package.json"; return 1; }
	cp "$here/package.json" "$npm/installed.json"
}

references() {
	local dirs ok=0
	set_up_llama && ok=1
	set_up_npm && ok=1
	[ $ok = 1 ] || return 0
	# Every package that has a comparison, wherever it lives.
	dirs=$(cd "$root" && grep -rl --include='*_test.go' '^func TestPeer' internal test | xargs -n1 dirname | sort -u | sed 's|^|./|')
	[ -n "$dirs" ] || { echo "run.sh: no TestPeer found"; return 1; }
	ran=1
	# shellcheck disable=SC2086
	(cd "$root" && BATON_PEER=$PEER go test -count=1 -timeout 20m -v -run '^TestPeer' $dirs)
}

clients() {
	local dir rc=0
	dir=$(mktemp -d)
	(cd "$root" && go build -o "$dir/baton" ./cmd/baton) || return 1
	ran=1
	(cd "$root/test/openai" && BATON_BIN=$dir/baton go test -count=1 ./...) || rc=1
	if set_up_npm; then javascript "$dir" || rc=1; fi
	rm -rf "$dir"
	return $rc
}

# The JavaScript client against a server of its own.
javascript() {
	local dir=$1 pid url='' rc=0 i
	echo test-key >"$dir/keys"
	"$dir/baton" serve --host 127.0.0.1 --port 0 --api-key-file "$dir/keys" >"$dir/log" 2>&1 </dev/null &
	pid=$!
	for i in $(seq 300); do
		url=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' "$dir/log" | head -1 || true)
		[ -n "$url" ] && node -e 'fetch(process.argv[1]).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))' "$url/health" && break
		kill -0 $pid 2>/dev/null || break
		sleep 0.1
	done
	[ -n "$url" ] || { echo "no server for the JavaScript client:"; cat "$dir/log"; kill $pid 2>/dev/null; return 1; }
	BATON_URL=$url BATON_KEY=test-key NPM_PREFIX=$npm node --test "$root/test/openai/node/" || rc=1
	kill $pid 2>/dev/null || true
	wait $pid || rc=1 # a drain after SIGTERM ends with status 0
	if [ $rc != 0 ]; then cat "$dir/log"; fi
	return $rc
}

rc=0
for part in ${*:-references clients}; do
	case $part in
	references | clients) $part || rc=1 ;;
	*) echo "run.sh: no part $part" >&2; exit 2 ;;
	esac
done
[ $rc = 0 ] || exit 1
[ $ran = 1 ] || exit 3
