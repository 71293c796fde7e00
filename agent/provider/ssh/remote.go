package ssh

// The texts below are all that is ever handed to a shell on a machine. They are constants without a single quote, so
// that they can be quoted with them. Each reads the base directory (empty means the default) and the run's name from
// its standard input first.

// remote quotes a text for the user's login shell.
func remote(text string) string { return "exec /bin/sh -c '" + header + text + "'" }

// Exit codes of the texts.
const (
	codeInput     = 90
	codeDirectory = 92
	codeStorage   = 93
	codeSetsid    = 94
	codeInterp    = 95
	codeNothing   = 96
)

// header names the run's directory. A run's name holds nothing but letters, digits, _ and -.
const header = `set -u; umask 077; LC_ALL=C; export LC_ALL
PATH="$PATH:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
IFS= read -r base && IFS= read -r id || exit 90
case "$id" in ""|*[!A-Za-z0-9_-]*) exit 90;; esac
if [ -z "$base" ]; then if [ "$(id -u)" = 0 ]; then base=/var/lib/ingot-ssh; else base="$HOME/.ingot-ssh"; fi; fi
d="$base/$id"
st() { sed "s/^.*) //" "/proc/$1/stat" 2>/dev/null | cut -d" " -f20; }
same() { [ -n "$1" ] && [ "$(st "$1")" = "$2" ]; }
`

// putText takes the arguments, the supervisor and the script: counts and lines, then the script to the end. It answers
// with the digests of what it has written. Nothing is changed under a run that was started. Runs of a week ago are
// forgotten.
const putText = `[ -d "$d/started" ] && { echo started; exit 0; }
mkdir -p "$base" || exit 92
find "$base" -mindepth 1 -maxdepth 1 -type d -mtime +7 -exec rm -rf {} + 2>/dev/null
mkdir -p "$d" || exit 92
lines() { IFS= read -r n || exit 90
case "$n" in ""|*[!0-9]*) exit 90;; esac
i=0; while [ "$i" -lt "$n" ]; do IFS= read -r a || exit 90; printf "%s\n" "$a" || exit 93; i=$((i+1)); done; }
lines >"$d/args" || exit $?
lines >"$d/run" || exit $?
cat >"$d/script" || exit 93
chmod 700 "$d/script" || exit 93
for f in args run script; do sha256sum <"$d/$f" || exit 93; done`

// startText reads the limit in seconds and the interpreter, and starts the run unless it was started before.
const startText = `IFS= read -r limit && IFS= read -r interp || exit 90
case "$limit" in ""|*[!0-9]*) exit 90;; esac
[ -d "$d/started" ] && { echo already; exit 0; }
command -v setsid >/dev/null || exit 94
[ -x "$interp" ] || exit 95
[ -f "$d/script" ] && [ -f "$d/run" ] && [ -f "$d/args" ] || exit 96
mkdir "$d/started" 2>/dev/null || { echo already; exit 0; }
cat /proc/sys/kernel/random/boot_id >"$d/boot"
setsid /bin/sh "$d/run" "$d" "$limit" "$interp" </dev/null >/dev/null 2>&1 &
echo begun`

// supervisor runs the script: $1 is the directory, $2 the limit in seconds, $3 the interpreter. It is a file on the
// machine, and may hold single quotes; it holds none.
const supervisor = `d=$1 limit=$2 interp=$3
st() { sed "s/^.*) //" "/proc/$1/stat" 2>/dev/null | cut -d" " -f20; }
members() { cat /proc/[0-9]*/stat 2>/dev/null | sed "s/^.*) //" | grep -q "^[^ZX] [0-9]* $1 "; }
echo "$$ $(st $$)" >"$d/sup"
set --
while IFS= read -r line; do a=$(printf "%b" "$line"; printf x); set -- "$@" "${a%x}"; done <"$d/args"
now=
command -v stdbuf >/dev/null && now="stdbuf -o0"
mkfifo "$d/o" "$d/e" || exit 1
{ $now head -c 1048576 >"$d/stdout"; wc -c >"$d/stdout.more"; } <"$d/o" &
ro=$!
{ $now head -c 1048576 >"$d/stderr"; wc -c >"$d/stderr.more"; } <"$d/e" &
re=$!
: >"$d/go"
( unset LC_ALL; umask 022; cd /; exec setsid "$interp" "$d/script" "$@" ) </dev/null >"$d/o" 2>"$d/e" &
p=$!
echo "$p $(st "$p")" >"$d/child.new" && mv "$d/child.new" "$d/child"
( sleep "$limit"; true >"$d/timeout"; kill -TERM "-$p"; sleep 5; kill -KILL "-$p" ) 2>/dev/null &
wait "$p"
rc=$?
left=
if [ -e "$d/timeout" ] || [ -e "$d/killed" ]; then
i=0; while members "$p" && [ "$i" -lt 10 ]; do sleep 0.2; i=$((i+1)); done
kill -KILL "-$p" 2>/dev/null
i=0; while members "$p" && [ "$i" -lt 25 ]; do sleep 0.2; i=$((i+1)); done
members "$p" && left=left
fi
( sleep 5; kill "$ro" "$re" ) 2>/dev/null &
wait "$ro"
wait "$re"
echo "$rc $left" >"$d/exit.new" && mv "$d/exit.new" "$d/exit"
kill -KILL 0
`

// lookText answers "absent", or: the state, the exit code or -, the processes left, whether the time was up and whether
// it was killed. Last are the numbers of bytes of both streams that are kept and that are not.
const lookText = `[ -d "$d/started" ] || { echo absent; exit 0; }
size() { if [ -f "$d/$1" ]; then wc -c <"$d/$1" | tr -d " "; else echo 0; fi; }
more() { if [ -s "$d/$1.more" ]; then tr -d " \n" <"$d/$1.more"; else echo 0; fi; }
has() { if [ -e "$d/$1" ]; then echo 1; else echo 0; fi; }
state=lost; rc=-; left=-; sup=; sst=; child=; cst=
[ -f "$d/sup" ] && read -r sup sst <"$d/sup"
[ -f "$d/child" ] && read -r child cst <"$d/child"
same "$sup" "$sst" && state=running
if [ -f "$d/exit" ]; then state=ended; read -r rc left <"$d/exit"
elif [ "$(cat "$d/boot" 2>/dev/null)" != "$(cat /proc/sys/kernel/random/boot_id)" ]; then state=rebooted
elif [ "$state" = lost ] && [ -z "$sup" ]; then state=starting
elif [ "$state" = lost ] && same "$child" "$cst"; then state=orphaned; fi
echo "$state $rc ${left:--} $(has timeout) $(has killed) $(has go) $(size stdout) $(more stdout) \
$(size stderr) $(more stderr)"`

// readText reads the stream and an offset, and prints the kept bytes from there on.
const readText = `IFS= read -r stream && IFS= read -r from || exit 90
case "$stream" in stdout|stderr) ;; *) exit 90;; esac
case "$from" in ""|*[!0-9]*) exit 90;; esac
[ -f "$d/$stream" ] || exit 0
tail -c "+$((from+1))" "$d/$stream" | head -c 65536`

// killText ends the script's process group: TERM, a while later KILL. The supervisor writes what came of it.
const killText = `[ -d "$d/started" ] || { echo absent; exit 0; }
[ -f "$d/exit" ] && exit 0
p=; s=
[ -f "$d/child" ] && read -r p s <"$d/child"
true >"$d/killed"
if same "$p" "$s"; then
kill -TERM "-$p" 2>/dev/null
i=0; while same "$p" "$s" && [ "$i" -lt 10 ]; do sleep 0.2; i=$((i+1)); done
kill -KILL "-$p" 2>/dev/null
fi
i=0; while [ ! -f "$d/exit" ] && [ "$i" -lt 20 ]; do sleep 0.2; i=$((i+1)); done`

// forgetText removes what may hold secrets. That the run was started, and how it ended, stays.
const forgetText = `[ -f "$d/exit" ] || exit 0
rm -f "$d/args" "$d/script" "$d/run" "$d/stdout" "$d/stderr" "$d/o" "$d/e"`
