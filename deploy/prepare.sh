#!/bin/sh
# Makes the passwords and API keys of the compose stack. What exists is left as it is; run it again after deleting some.
#
# deploy/secrets/*.password      the passwords of Redis and Grafana
# deploy/secrets/redis-auth.conf the same as Redis reads it, for itself and for the primary it follows
# deploy/secrets/*.key           the API keys themselves, one a role: give them to callers
# deploy/secrets/api-keys.json   their hashes, which is all that the replicas get to see
set -eu
root="${1:-$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)}"
secrets="$root/deploy/secrets"
umask 077
mkdir -p "$secrets"

random() {
    od -An -tx1 -N32 /dev/urandom | tr -d ' \n'
}

for name in redis grafana; do
    [ -e "$secrets/$name.password" ] || random >"$secrets/$name.password"
done
[ ! -e "$secrets/redis-auth.conf" ] || chmod u+w "$secrets/redis-auth.conf" "$secrets/api-keys.json"
password="$(cat "$secrets/redis.password")"
printf 'requirepass "%s"\nmasterauth "%s"\n' "$password" "$password" >"$secrets/redis-auth.conf"

entries=
for role in node gateway admin; do
    [ -e "$secrets/$role.key" ] || random >"$secrets/$role.key"
    hash="$(sha256sum "$secrets/$role.key" | cut -d' ' -f1)"
    entries="$entries${entries:+,}
  {\"name\": \"$role\", \"role\": \"$role\", \"sha256\": \"$hash\"}"
done
printf '{"keys": [%s\n]}\n' "$entries" >"$secrets/api-keys.json"
# A container's user is nobody's friend on the host: the files are readable, the folder that holds them is not.
chmod 444 "$secrets"/*

cat <<END
Ready: docker compose up --build --wait
The admin key is in deploy/secrets/admin.key, Grafana's password in deploy/secrets/grafana.password.

For the profiles, put one of these into .env:
SCHEDULER_REDIS_ADDR=sentinel://sentinel-1:26379,sentinel-2:26379,sentinel-3:26379/aenv
SCHEDULER_REDIS_ADDR=cluster://cluster-1:6379,cluster-2:6379,cluster-3:6379
END
