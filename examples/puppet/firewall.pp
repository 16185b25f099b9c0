# Puppet: the firewall of an agent.  The rules stay if the agent still reaches its server, else the agent takes
# them back by itself.  The command hitables is the only need.
#
#   class { 'firewall': rules => file('profile/office.rules') }
#
# With --noop nothing is loaded; "hitables apply FILE --dry-run" on an agent shows what would change.
class firewall (
  String  $rules,
  String  $server    = $settings::server,
  Integer $port      = 8140,
  String  $folder    = '/etc/hitables',
  String  $state     = '/var/lib/hitables',
  String  $units     = '/etc/systemd/system',
) {
  $path = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin']

  file { $folder:
    ensure => directory,
    mode   => '0700',
  }

  file { "${folder}/office.rules":
    content => $rules,
    mode    => '0600',
  }

  exec { 'load the firewall':
    command     => "hitables apply ${folder}/office.rules --confirm 60 --check 'timeout 10 bash -c \"exec 3<>/dev/tcp/${server}/${port}\"'",
    unless      => "hitables apply ${folder}/office.rules --dry-run",
    environment => "HITABLES_STATE=${state}",
    path        => $path,
    logoutput   => true,
    timeout     => 600,
    require     => File["${folder}/office.rules"],
  }

  exec { 'load it at every boot':
    command     => 'hitables persist',
    creates     => "${units}/hitables.service",
    environment => "HITABLES_STATE=${state}",
    path        => $path,
    require     => Exec['load the firewall'],
  }
}
