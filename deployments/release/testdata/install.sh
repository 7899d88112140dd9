#!/usr/bin/env bash
# Installs, upgrades, downgrades and removes the Debian package in an overlay on top of this machine's
# root directory, which exists as long as the mount namespace of this process.
#
#   unshare --mount --pid --fork install.sh outside OLD.deb NEW.deb API OPS PUBLISHER
set -euo pipefail

if [ "$1" = outside ]; then
  shift
  work=$(mktemp -d)
  mount -t tmpfs tmpfs "$work"
  mkdir "$work"/{upper,work,root}
  mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$work/root"
  mount -t proc proc "$work/root/proc"
  mount --rbind /dev "$work/root/dev"
  cp "$1" "$work/root/root/old.deb"
  cp "$2" "$work/root/root/new.deb"
  cp "$0" "$work/root/root/install.sh"
  exec chroot "$work/root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash /root/install.sh inside "$3" "$4" "$5"
fi

api=$2 ops=$3 publisher=$4
cd /root
set -x

fails() { ! "$@"; }

# start runs the command of the unit as its user, and waits until it is ready.
start() {
  read -ra command <<<"$(sed -n 's/^ExecStart=//p' /lib/systemd/system/trafficd.service)"
  setpriv --reuid=trafficd --regid=trafficd --clear-groups --no-new-privs --bounding-set -all "${command[@]}" 2>>/root/log &
  daemon=$!
  for _ in $(seq 300); do
    trafficd health --ready --config /etc/trafficd/trafficd.yaml >/root/ready 2>&1 && return
    kill -0 "$daemon" || break
    sleep 0.1
  done
  cat /root/log /root/ready
  return 1
}
stop() { kill -TERM "$daemon" && wait "$daemon"; }
version() { dpkg-query -W -f '${Version}\n' trafficd; }
frames() { trafficctl journal ls /var/lib/trafficd/journal | awk 'END { print $3 }'; }

# A first installation.
dpkg -i old.deb
[ "$(version)" = "0.0.0~dev.20261122.g0123abc" ]
dpkg --verify trafficd # prints files that differ from the package
[ -z "$(dpkg --verify trafficd)" ]
id trafficd
[ "$(stat -c '%U:%G %a' /etc/trafficd/trafficd.yaml)" = 'root:trafficd 640' ]
[ "$(stat -c '%U:%G %a' /etc/trafficd/forecaster.yaml)" = 'root:trafficd 640' ]
[ "$(stat -c '%U:%G %a' /etc/trafficd/keys.yaml)" = 'root:trafficd 640' ]
[ "$(stat -c '%U:%G %a' /var/lib/trafficd)" = 'trafficd:trafficd 750' ]
[ -L /etc/systemd/system/multi-user.target.wants/trafficd.service ]
[ ! -e /etc/systemd/system/multi-user.target.wants/forecaster.service ]
[ ! -e /etc/systemd/system/multi-user.target.wants/feeder.service ]
[ ! -e /etc/systemd/system/multi-user.target.wants/route-follow.service ]
systemd-analyze verify /lib/systemd/system/{trafficd,forecaster,feeder,route-follow}.service 2>verified || { cat verified; exit 1; }
fails grep -iE 'trafficd|forecaster|feeder|route-follow' verified
setpriv --reuid=trafficd --regid=trafficd --clear-groups trafficd --config /etc/trafficd/trafficd.yaml --check-config
setpriv --reuid=trafficd --regid=trafficd --clear-groups forecaster --config /etc/trafficd/forecaster.yaml --print-config >/dev/null

# The steps of deployments/README.md.
sed -i "s/127.0.0.1:8080/$api/; s/127.0.0.1:8081/$ops/; s/feeds: \[\]/feeds: [{product_instance: city, file: {path: \/etc\/trafficd\/detectors.csv, column: code}}]/" /etc/trafficd/trafficd.yaml
printf 'code\nD0001\n' >/etc/trafficd/detectors.csv
trafficctl key new --name acme --product-instance city --rights ingest --file /etc/trafficd/keys.yaml >key
[ "$(stat -c '%U:%G %a' /etc/trafficd/keys.yaml)" = 'root:trafficd 640' ]
start
printf 'detectorCode,measureTypeCode,timestampFrom,timestampTo,value\nD0001,speed,2026-01-01T00:00:00Z,2026-01-01T00:01:00Z,50\n' >batch.csv
trafficctl send batch.csv --url "http://$api" --key-file key
stop
[ "$(frames)" = 1 ]

# A feed, as the help of trafficctl feed add describes it. systemd creates the state directory.
mkdir published
cat >published/feed.xml <<XML
<d2LogicalModel><payloadPublication><siteMeasurements><measurementSiteReference id="S" version="1"/>
<measurementTimeDefault>2026-01-01T00:00:00Z</measurementTimeDefault><measuredValue index="1"><measuredValue><basicData type="TrafficFlow"><vehicleFlow>
<vehicleFlowRate>60</vehicleFlowRate></vehicleFlow></basicData></measuredValue></measuredValue></siteMeasurements></payloadPublication></d2LogicalModel>
XML
python3 -m http.server --bind "${publisher%:*}" --directory published "${publisher#*:}" 2>/dev/null &
python=$!
for _ in $(seq 100); do
  trafficctl feed add "http://$publisher/feed.xml" --format ndw --product-instance nl --dir /etc/trafficd >added 2>&1 && break
  sleep 0.1
done
cat added
grep -q 'product_instance: nl' /etc/trafficd/keys.yaml
install --directory --owner trafficd --group trafficd --mode 750 /var/lib/feeder
start
read -ra command <<<"$(sed -n 's/^ExecStart=//p' /lib/systemd/system/feeder.service)"
setpriv --reuid=trafficd --regid=trafficd --clear-groups --no-new-privs --bounding-set -all "${command[@]}" 2>>/root/feeder.log &
feeder=$!
for _ in $(seq 300); do
  [ "$(frames)" = 2 ] && break
  sleep 0.1
done
[ "$(frames)" = 2 ] || { cat /root/feeder.log; exit 1; }
kill -TERM "$feeder" && wait "$feeder"
kill "$python"
stop
cp /etc/trafficd/trafficd.yaml /etc/trafficd/keys.yaml .

# An upgrade and a downgrade keep configuration, keys and journal.
for deb in new.deb old.deb; do
  before=$(version)
  dpkg -i "$deb"
  [ "$(version)" != "$before" ]
  cmp trafficd.yaml /etc/trafficd/trafficd.yaml
  cmp keys.yaml /etc/trafficd/keys.yaml
  [ "$(stat -c '%U:%G %a' /etc/trafficd/trafficd.yaml)" = 'root:trafficd 640' ]
  start
  stop
  [ "$(frames)" = 2 ]
  trafficctl journal verify /var/lib/trafficd/journal
done

# Removal keeps the configuration; neither it nor purge deletes measurements.
dpkg -r trafficd
[ ! -e /usr/bin/trafficd ]
cmp trafficd.yaml /etc/trafficd/trafficd.yaml
dpkg -P trafficd
[ ! -e /etc/trafficd/trafficd.yaml ] && [ ! -e /etc/trafficd/forecaster.yaml ] && [ ! -e /etc/trafficd/keys.yaml ]
ls /var/lib/trafficd/journal/*.seg
set +x
printf '\ninstall.sh: passed\n'
