#!/bin/sh
# Runs a command while leading a resource, with nothing but curl:
#
#   lead.sh RESOURCE COMMAND [ARGUMENT...]
#
# The command gets FENCING_TOKEN and FENCING_RESOURCE, to be sent as X-Fencing-Token and X-Fencing-Resource. It is
# stopped when leadership is lost (then the exit code is 75); else its own exit code is passed on. HIGHGATE_ELECTIONS is
# the address of the gateway's elections port (or, without one, of its admin port), HIGHGATE_ELECTIONS_TOKEN the jobs'
# secret if it wants one, TTL the lease in whole seconds, at least 3.
set -u

gateway=${HIGHGATE_ELECTIONS:-${HIGHGATE_ADMIN:-127.0.0.1:9901}}
ttl=${TTL:-15}
# The command does not get the secret.
secret=${HIGHGATE_ELECTIONS_TOKEN:-}
unset HIGHGATE_ELECTIONS_TOKEN HIGHGATE_ADMIN_TOKEN
resource=${1:?usage: lead.sh RESOURCE COMMAND [ARGUMENT...]}
shift

# Seconds on a clock that neither jumps nor stops while the machine sleeps.
now() { cut -d. -f1 /proc/uptime; }

# call NAME JSON LIMIT: the answer, and its status on the last line.
call() {
    curl -s --max-time "$3" -w '\n%{http_code}\n' -H "Authorization: Bearer $secret" \
        -d "$2" "http://$gateway/v1/elections/$1"
}

status() { printf '%s\n' "$1" | tail -n 1; }

while :; do
    asked=$(now)
    answer=$(call campaign "{\"resource\":\"$resource\",\"holder\":\"$(hostname)-$$\",\"ttl_seconds\":$ttl,\"wait_seconds\":60}" 70)
    case $(status "$answer") in
        200) break ;;
        409) echo "lead.sh: waiting for $resource" >&2 ;;
        4*) printf 'lead.sh: refused: %s\n' "$answer" >&2; exit 1 ;;
        *) echo "lead.sh: no gateway answers at $gateway" >&2; sleep 2 ;;
    esac
done
lease=$(printf '%s' "$answer" | sed -n 's/.*"lease":"\([0-9a-f]*\)".*/\1/p')
FENCING_TOKEN=$(printf '%s' "$answer" | sed -n 's/.*"token":\([0-9]*\).*/\1/p')
FENCING_RESOURCE=$resource
export FENCING_TOKEN FENCING_RESOURCE
held="{\"resource\":\"$resource\",\"lease\":\"$lease\"}"

# Renews until it cannot, then stops the work. What it may count on starts before a renewal is sent, and whole
# seconds are one second less. A grant that was waited for is renewed at once: nobody knows how old it is.
renew_or_stop() {
    deadline=$((asked + ttl - 1))
    while :; do
        sent=$(now)
        case $(status "$(call renew "$held" $((ttl / 3)))") in
            200) deadline=$((sent + ttl - 1)) ;;
            410) break ;;
        esac
        [ "$(now)" -gt "$deadline" ] && break
        sleep $((ttl / 3))
        [ "$(now)" -gt "$deadline" ] && break
        # Nobody is left to end this if the script was killed.
        kill -0 "$work" || exit 0
    done
    # From here on nobody may end this before it has said why the work stopped.
    trap '' TERM
    kill "$work"
    exit 75
}

"$@" &
work=$!
renew_or_stop >/dev/null 2>&1 &
heart=$!
# After both were begun: a shell loses a signal that reaches what it has just begun under a trap, and the renewals would
# never be ended.
trap 'kill "$work"' TERM INT
wait "$work"
code=$?
# A signal ends the first wait early; the work may still be on its way out.
wait "$work" 2>/dev/null
kill "$heart" 2>/dev/null
wait "$heart" 2>/dev/null
if [ $? -eq 75 ]; then
    echo "lead.sh: leadership of $resource was lost" >&2
    exit 75
fi
call resign "$held" 5 >/dev/null
exit "$code"
